// Programs of elementwise operators as stages of kernels: the text of a Source or a Sink.

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/staged_kernel.cuh"

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

/// Of an image's channels.
bool is_part(const Tensor& image) { return image.defined() && image.rank() > 2 && image.pixel_pitch() > image.shape()[1]; }
/// "32, 64": for place_in_part.
std::string channels_and_pitch(const Tensor& image) { return concat(image.shape()[1], ", ", image.pixel_pitch()); }

std::uint64_t word_of(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); }

/// The struct of a program; inputs of it that are operands are numbered from `first` on.
class StageText {
 public:
  StageText(const ElementwiseProgram& program, std::span<const Tensor> operands, const Shape& image, const StageOptions& options, int first)
      : program_(program), operands_(operands), image_(image), options_(options), first_(first) {
    const auto is_wide = [](const Tensor& tensor) { return tensor.dtype() == DType::f64; };
    wide_ = std::any_of(operands.begin(), operands.end(), is_wide) || options.result == DType::f64;
  }

  /// A Sink with an output, which stands before the operands and may be undefined.
  CompiledStage stage(const Tensor* output) {
    write_head(program_.inputs);
    int kept_vectors = 0;
    bool reads_beside = false;
    for (int k = first_; k < program_.inputs; ++k) {
      reads_beside = reads_beside || is_beside(k);
      if (is_kept(k) && is_vector(k)) ++kept_vectors;
    }
    if (reads_beside) line("  static constexpr bool reads_beside = true;");
    write_operands();
    output != nullptr ? write_store(*output) : write_values();
    line("};");
    const auto before = output != nullptr ? std::span(output, 1) : std::span<const Tensor>();
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
      if (outputs[k].defined()) write_stored(program_.outputs[k], outputs[k].dtype(), program_.inputs + static_cast<int>(k), outputs[k]);
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
      line("    part.o", k, " = ", function_name, stored(k), is_vector(k) ? ", width" : "", ">(data[", k, "], ", place_text(k), ");");
    }
    line("    return part;");
    line("  }");
  }

  std::string place_text(int input) const {
    switch (lies(input)) {
      case Along::image: return place_in(operand(input));
      case Along::pixel:
        return element_count(image_) > UINT32_MAX ? "place.offset / channel_count"
                                                  : "static_cast<std::uint32_t>(place.offset) / static_cast<std::uint32_t>(channel_count)";
      case Along::channel: return "place.channel";
      case Along::sample: return "place.sample";
      case Along::both: return "place.sample * channel_count + place.channel";
      case Along::number: return "0";
    }
    return {};
  }
  static std::string place_in(const Tensor& image) {
    return is_part(image) ? concat("stages::place_in_part<", channels_and_pitch(image), ">(place)") : "place.offset";
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

  void write_store(const Tensor& output) {
    line("  template <int width, class C>");
    line("  __device__ cuda::Vector<Computed, width> store(const stages::Place& place, const cuda::Vector<C, width>& elements, ",
         "const Words<width>& words, const Channels<width>& channels) const {");
    line("    const auto v0 = converted<Computed, width>(elements);");
    write_computation();
    write_stored(program_.outputs.at(0), *options_.result, 0, output);
    line("    return converted<Computed, width>(converted<", name_in_programs(*options_.result), ", width>(v", program_.outputs.at(0),
         "));");
    line("  }");
  }

  /// A value, to the tensor, which has this place among all, and is undefined while a kernel is only prepared for some.
  void write_stored(int value, DType dtype, int place, const Tensor& tensor) {
    const char* const result = name_in_programs(dtype);
    line("    cuda::store_elements(static_cast<", result, "*>(const_cast<void*>(data[", place, "])) + ", place_in(tensor), ", converted<",
         result, ", width>(v", value, "), true);");
  }

  const ElementwiseProgram& program_;
  std::span<const Tensor> operands_;
  const Shape& image_;
  const StageOptions& options_;
  int first_;
  bool wide_ = false;
  std::string text_;
};

/// `sizes`: further arguments of the type.
CompiledStage stored(const Tensor& tensor, const char* type, const std::string& name, DType dtype, const std::string& sizes = "") {
  const bool aligned = !tensor.defined() || cuda::aligned_for_vectors(tensor.raw());
  return {concat("using ", name, " = stages::", type, '<', name_in_programs(dtype), sizes, ">;\n"),
          {tensor.defined() ? word_of(tensor) : 0, aligned}};
}

}  // namespace

CompiledStage compiled_source(const ElementwiseProgram& program, std::span<const Tensor> operands, const Shape& image,
                              const StageOptions& options) {
  return StageText(program, operands, image, options, 0).stage(nullptr);
}

CompiledStage compiled_sink(const ElementwiseProgram& program, std::span<const Tensor> operands, const Tensor& output, const Shape& image,
                            const StageOptions& options) {
  return StageText(program, operands, image, options, 1).stage(&output);
}

CompiledStage compiled_sums(const ElementwiseProgram& program, std::span<const Tensor> operands, std::span<const Tensor> outputs,
                            const Dims& summed, const Shape& image, const StageOptions& options) {
  return StageText(program, operands, image, options, 0).stage_of_sums(outputs, summed);
}

CompiledStage stored_source(const Tensor& input, const std::string& name) { return stored(input, "Stored", name, input.dtype()); }
CompiledStage stored_sink(const Tensor& output, DType dtype, const std::string& name) {
  return stored(output, "StoredSink", name, dtype, is_part(output) ? concat(", ", channels_and_pitch(output)) : "");
}

bool is_stage_possible(std::span<const Tensor> operands, const Shape& image) {
  return std::all_of(operands.begin(), operands.end(), [&](const Tensor& operand) {
    if (operand.shape() == image) return has_channel_vectors(operand);
    const bool lies_so = lies_along(operand.shape(), image) || lies_along_pixels(operand.shape(), image);
    return lies_so && operand.is_contiguous() && (operand.elements() == 1 || cuda::aligned_for_vectors(operand.raw()));
  });
}

}  // namespace frit::ops
