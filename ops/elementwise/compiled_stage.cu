// Programs of elementwise operators as stages of kernels: the text of a Source or a Sink.

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/elementwise.h"

namespace frit::ops {
namespace {

/// How an operand lies: which axes of the image it has.
enum class Along { image, pixel, channel, sample, both, number };

Along along(const Tensor& operand, const Shape& image) {
  if (operand.shape() == image) return Along::image;
  const int missing = image.rank() - operand.rank();
  const auto has = [&](int axis) { return axis >= missing && operand.shape()[axis - missing] != 1; };
  if (lies_along_pixels(operand.shape(), image)) return Along::pixel;
  return has(0) && has(1) ? Along::both : has(1) ? Along::channel : has(0) ? Along::sample : Along::number;
}

std::uint64_t word_of(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); }

/// The struct of a program; inputs of it that are operands are numbered from `first` on.
class StageText {
 public:
  StageText(const ElementwiseProgram& program, std::span<const Tensor> operands, const Shape& image, const StageOptions& options, int first)
      : program_(program), operands_(operands), image_(image), options_(options), first_(first) {
    const auto is_wide = [](const Tensor& tensor) { return tensor.dtype() == DType::f64; };
    wide_ = std::any_of(operands.begin(), operands.end(), is_wide) || options.result == DType::f64;
  }

  /// `before`: tensors that stand before the operands.
  CompiledStage stage(std::span<const Tensor> before) {
    write_head(program_.inputs);
    int kept_vectors = 0;
    bool reads_beside = false;
    for (int k = first_; k < program_.inputs; ++k) {
      reads_beside = reads_beside || is_beside(k);
      if (is_kept(k) && is_vector(k)) ++kept_vectors;
    }
    if (reads_beside) line("  static constexpr bool reads_beside = true;");
    write_operands();
    options_.result ? write_store() : write_values();
    line("};");
    return {std::move(text_), argument(before), kept_vectors};
  }

  CompiledStage stage_of_sums(std::span<const Tensor> outputs, const Dims& summed) {
    write_head(program_.inputs + static_cast<int>(outputs.size()));
    line("  static constexpr int sums = ", summed.rank(), ";");
    write_operands();
    line("  template <int width>");
    line("  __device__ void evaluate(const stages::Place& place, const Words<width>& words, const Channels<width>& channels, ",
         "Computed (&totals)[sums][width]) const {");
    write_computation();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k].defined()) write_stored(program_.outputs[k], outputs[k].dtype(), program_.inputs + static_cast<int>(k));
    }
    for (int s = 0; s < summed.rank(); ++s) {
      const int value = program_.outputs[static_cast<std::size_t>(summed[s])];
      line("    for (int k = 0; k < width; ++k) totals[", s, "][k] = sum_of(totals[", s, "][k], v", value, "[k]);");
    }
    line("  }");
    line("};");
    return {std::move(text_), argument({}, outputs)};
  }

 private:
  /// `before` and `after`: tensors that stand there among the operands.
  std::vector<std::uint64_t> argument(std::span<const Tensor> before, std::span<const Tensor> after = {}) const {
    std::vector<std::uint64_t> words;
    for (const std::span<const Tensor> tensors : {before, operands_, after}) {
      for (const Tensor& tensor : tensors) words.push_back(tensor.defined() ? word_of(tensor) : 0);
    }
    words.push_back(static_cast<std::uint64_t>(image_[1]));
    return words;
  }

  template <class... Parts>
  void line(const Parts&... parts) {
    text_ += concat(parts..., '\n');
  }

  void write_head(int tensors) {
    line("struct ", options_.name, " {");
    line("  using Computed = ", wide_ ? "double" : "float", ";");
    line("  const void* data[", std::max(1, tensors), "];");
    line("  std::int64_t channel_count;");
  }
  void write_operands() {
    write_part("Channels", "channels", true);
    write_part("Words", "fetch", false);
  }

  const Tensor& operand(int input) const { return operands_[static_cast<std::size_t>(input - first_)]; }
  const char* stored(int input) const { return name_in_programs(operand(input).dtype()); }
  Along lies(int input) const { return along(operand(input), image_); }
  bool is_vector(int input) const { return lies(input) != Along::sample && lies(input) != Along::number && lies(input) != Along::pixel; }
  bool is_beside(int input) const {
    const Tensor* const other = options_.beside;
    return other != nullptr && other->raw() == operand(input).raw() && other->dtype() == operand(input).dtype() &&
           lies(input) == Along::image;
  }
  /// Read once, for all vectors of a thread.
  bool is_kept(int input) const {
    const Along axes = lies(input);
    if (axes == Along::image || axes == Along::pixel) return false;
    return axes == Along::channel || axes == Along::number || options_.keeps_to_sample;
  }

  /// What is kept, or what is not: its type, and how it is read.
  void write_part(const char* type, const char* function, bool kept) {
    line("  template <int width>");
    line("  struct ", type, " {");
    for (int k = first_; k < program_.inputs; ++k) {
      if (is_kept(k) != kept || is_beside(k)) continue;
      is_vector(k) ? line("    cuda::VectorWords<", stored(k), ", width> o", k, ";") : line("    ", stored(k), " o", k, ";");
    }
    line("  };");
    line("  template <int width>");
    line("  __device__ ", type, "<width> ", function, "(const stages::Place& place) const {");
    line("    ", type, "<width> part;");
    for (int k = first_; k < program_.inputs; ++k) {
      if (is_kept(k) != kept || is_beside(k)) continue;
      const char* const function_name = is_vector(k) ? "words_at<" : "element_at<";
      line("    part.o", k, " = ", function_name, stored(k), is_vector(k) ? ", width" : "", ">(data[", k, "], ", place_text(lies(k)), ");");
    }
    line("    return part;");
    line("  }");
  }

  const char* place_text(Along axes) const {
    switch (axes) {
      case Along::image: return "place.offset";
      case Along::pixel:
        return element_count(image_) > UINT32_MAX ? "place.offset / channel_count"
                                                  : "static_cast<std::uint32_t>(place.offset) / static_cast<std::uint32_t>(channel_count)";
      case Along::channel: return "place.channel";
      case Along::sample: return "place.sample";
      case Along::both: return "place.sample * channel_count + place.channel";
      case Along::number: return "0";
    }
    return nullptr;
  }

  std::string source(int input) const { return is_beside(input) ? "beside" : concat(is_kept(input) ? "channels.o" : "words.o", input); }

  void write_computation() {
    line("    using T = Computed;");
    for (int k = first_; k < program_.inputs; ++k) {
      line("    const auto v", k, " = ", is_vector(k) ? "converted<T, width>(" : "repeated<T, width>(", source(k), ");");
    }
    std::vector<bool> numbers;
    for (int k = 0; k < program_.inputs; ++k) numbers.push_back(k >= first_ && lies(k) == Along::number);
    for (std::size_t n = 0; n < program_.instructions.size(); ++n) text_ += instruction_text(program_, n, wide_, numbers);
  }

  void write_values() {
    line("  template <int width, class Beside>");
    line("  __device__ cuda::Vector<Computed, width> values(const Words<width>& words, const Channels<width>& channels, ",
         "const Beside& beside) const {");
    write_computation();
    line("    return v", program_.outputs.at(0), ";");
    line("  }");
  }

  void write_store() {
    line("  template <int width, class C>");
    line("  __device__ void store(const stages::Place& place, const cuda::Vector<C, width>& elements, const Words<width>& words, ",
         "const Channels<width>& channels) const {");
    line("    const auto v0 = converted<Computed, width>(elements);");
    write_computation();
    write_stored(program_.outputs.at(0), *options_.result, 0);
    line("  }");
  }

  /// A value, to the tensor that has this place among all.
  void write_stored(int value, DType dtype, int place) {
    const char* const result = name_in_programs(dtype);
    line("    cuda::store_elements(static_cast<", result, "*>(const_cast<void*>(data[", place, "])) + place.offset, converted<", result,
         ", width>(v", value, "), true);");
  }

  const ElementwiseProgram& program_;
  std::span<const Tensor> operands_;
  const Shape& image_;
  const StageOptions& options_;
  int first_;
  bool wide_ = false;
  std::string text_;
};

CompiledStage stored(const Tensor& tensor, const char* type, const std::string& name, DType dtype) {
  const bool aligned = !tensor.defined() || cuda::aligned_for_vectors(tensor.raw());
  return {concat("using ", name, " = stages::", type, '<', name_in_programs(dtype), ">;\n"),
          {tensor.defined() ? word_of(tensor) : 0, aligned}};
}

}  // namespace

CompiledStage compiled_source(const ElementwiseProgram& program, std::span<const Tensor> operands, const Shape& image,
                              const StageOptions& options) {
  return StageText(program, operands, image, options, 0).stage({});
}

CompiledStage compiled_sink(const ElementwiseProgram& program, std::span<const Tensor> operands, const Tensor& output, const Shape& image,
                            const StageOptions& options) {
  return StageText(program, operands, image, options, 1).stage({&output, 1});
}

CompiledStage compiled_sums(const ElementwiseProgram& program, std::span<const Tensor> operands, std::span<const Tensor> outputs,
                            const Dims& summed, const Shape& image, const StageOptions& options) {
  return StageText(program, operands, image, options, 0).stage_of_sums(outputs, summed);
}

CompiledStage stored_source(const Tensor& input, const std::string& name) { return stored(input, "Stored", name, input.dtype()); }
CompiledStage stored_sink(const Tensor& output, DType dtype, const std::string& name) { return stored(output, "StoredSink", name, dtype); }

bool is_stage_possible(std::span<const Tensor> operands, const Shape& image) {
  return std::all_of(operands.begin(), operands.end(), [&](const Tensor& operand) {
    const Layout layout = operand.shape() == image ? Layout::channels_last : Layout::contiguous;
    return (lies_along(operand.shape(), image) || lies_along_pixels(operand.shape(), image)) && operand.is_contiguous(layout) &&
           cuda::aligned_for_vectors(operand.raw());
  });
}

}  // namespace frit::ops
