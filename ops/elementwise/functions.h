#pragma once

#include <tuple>

#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/elementwise/compare_functors.h"
#include "frit/ops/elementwise/unary_functors.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/random/dropout_functor.h"
#include "frit/ops/shape/cast_functor.h"

// The elementwise operators with their functors. From these lists are made the operators' own CUDA kernels and the kernel that computes
// whole programs of them.

namespace frit::ops {

// What a functor takes and gives, where T is the operator's dtype.
template <class T>
using Unary = T(T);
template <class T>
using Binary = T(T, T);
template <class T>
using Ternary = T(T, T, T);
template <class T>
using Comparison = std::uint8_t(T, T);
template <class T>
using Selection = T(std::uint8_t, T, T);
template <class T>
using Masked = T(T, std::uint8_t);

/// The operator <name><suffix>, whose functor is made of attributes A.
template <template <class> class SignatureOf, template <class> class FunctorOf, class A = NoAttributes, bool integers = false>
struct Elementwise {
  template <class T>
  using Signature = SignatureOf<T>;
  template <class T>
  using Functor = FunctorOf<T>;
  using Attributes = A;
  static constexpr bool takes_integers = integers;

  const char* name;
  const char* suffix = "";
};

template <template <class> class Signature, template <class> class Functor>
using OfAnyDType = Elementwise<Signature, Functor, NoAttributes, true>;

/// A functor's gradient as a functor.
template <template <class> class Function, class A = NoAttributes>
struct Gradient {
  template <class T>
  struct Of {
    Function<T> function;

    Of() requires std::is_same_v<A, NoAttributes>
    = default;
    explicit Of(const A& attributes) requires(!std::is_same_v<A, NoAttributes>) : function(attributes) {}
    template <class... Values>
    FRIT_HOST_DEVICE T operator()(Values... values) const {
      return function.gradient(values...);
    }
  };
};

/// Such operators one after another. Lists of them are joined without std::tuple_cat, for which compilers need seconds.
template <class... Entries>
struct Functions : Entries... {
  using Tuple = std::tuple<Entries...>;
};

template <class... First, class... Second>
constexpr Functions<First..., Second...> operator+(const Functions<First...>& first, const Functions<Second...>& second) {
  return {static_cast<const First&>(first)..., static_cast<const Second&>(second)...};
}

template <class... Entries>
constexpr Functions<Entries...> functions(const Entries&... entries) {
  return {entries...};
}

/// An operator of one input, and its gradient.
template <template <class> class Function, class A = NoAttributes>
constexpr auto pointwise(const char* name) {
  return functions(Elementwise<Unary, Function, A>{name}, Elementwise<Binary, Gradient<Function, A>::template Of, A>{name, "_backward"});
}

/// An operator of two inputs that has the share of each in its gradient.
template <template <class> class Function>
constexpr auto shared(const char* name) {
  return functions(OfAnyDType<Binary, Function>{name}, Elementwise<Ternary, Gradient<Function>::template Of>{name, "_backward"});
}

inline constexpr auto activation_functions =
    pointwise<Clamp, ClampAttributes>("clamp") + pointwise<Relu>("relu") + pointwise<LeakyRelu, LeakyReluAttributes>("leaky_relu") +
    pointwise<Elu, EluAttributes>("elu") + pointwise<Gelu, GeluAttributes>("gelu") + pointwise<Sigmoid>("sigmoid") +
    pointwise<Tanh>("tanh") + pointwise<Silu>("silu") + pointwise<Mish>("mish") + pointwise<Softplus, SoftplusAttributes>("softplus") +
    pointwise<HardSigmoid>("hard_sigmoid") + pointwise<HardSwish>("hard_swish");

inline constexpr auto unary_functions =
    pointwise<Abs>("abs") + functions(Elementwise<Unary, Exp>{"exp"}, Elementwise<Unary, Log>{"log"}, Elementwise<Unary, Sqrt>{"sqrt"},
                                      Elementwise<Unary, Square>{"square"}, Elementwise<Unary, Reciprocal>{"reciprocal"},
                                      Elementwise<Unary, Rsqrt>{"rsqrt"}, Elementwise<Unary, Sin>{"sin"}, Elementwise<Unary, Cos>{"cos"},
                                      Elementwise<Unary, Erf>{"erf"}, Elementwise<Unary, Floor>{"floor"}, Elementwise<Unary, Ceil>{"ceil"},
                                      Elementwise<Unary, Round>{"round"}, Elementwise<Unary, Sign>{"sign"},
                                      Elementwise<Unary, Identity>{"stop_gradient"});

inline constexpr auto arithmetic_functions =
    functions(OfAnyDType<Binary, Add>{"add"}, OfAnyDType<Binary, Subtract>{"subtract"}, OfAnyDType<Binary, Multiply>{"multiply"},
              Elementwise<Binary, Divide>{"divide"}, Elementwise<Binary, Power>{"power"}, OfAnyDType<Unary, Negate>{"negate"}) +
    shared<Minimum>("minimum") + shared<Maximum>("maximum");

inline constexpr auto compare_functions =
    functions(OfAnyDType<Comparison, Equal>{"equal"}, OfAnyDType<Comparison, NotEqual>{"not_equal"}, OfAnyDType<Comparison, Less>{"less"},
              OfAnyDType<Comparison, LessEqual>{"less_equal"}, OfAnyDType<Comparison, Greater>{"greater"},
              OfAnyDType<Comparison, GreaterEqual>{"greater_equal"}, OfAnyDType<Selection, Where>{"where"});

inline constexpr auto random_functions = functions(Elementwise<Masked, Drop, DropoutBackwardAttributes>{"dropout", "_backward"});

inline constexpr Elementwise<Unary, Cast, CastAttributes> cast_function{"cast"};

/// A functor's number in FunctorData is its place here.
using ElementwiseFunctions = decltype(activation_functions + unary_functions + arithmetic_functions + compare_functions + random_functions +
                                      functions(cast_function))::Tuple;

}  // namespace frit::ops
