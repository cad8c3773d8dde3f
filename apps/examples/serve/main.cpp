// serve CHECKPOINT IMAGES: prints the class of each of the first five images, and leaves them in five.npy.

#include <frit/runtime.h>

#include <algorithm>
#include <iostream>
#include <span>

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: serve CHECKPOINT IMAGES\n";
    return 2;
  }
  try {
    frit::Predictor classify(arguments[1]);
    const frit::Tensor images = frit::read_examples(arguments[2]).slice(0, 0, 5);
    const frit::Tensor logits = classify(images);
    const auto classes = static_cast<std::size_t>(logits.dim(1));
    for (std::span<const float> rest = logits.span<float>(); !rest.empty(); rest = rest.subspan(classes)) {
      const auto row = rest.first(classes);
      std::cout << "class " << std::max_element(row.begin(), row.end()) - row.begin() << '\n';
    }
    frit::write_npy("five.npy", images);
  } catch (const frit::Error& error) {
    std::cerr << "serve: " << error.what() << '\n';
    return 1;
  }
}
