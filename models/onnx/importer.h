#pragma once

#include <set>

#include "frit/models/onnx/call.h"
#include "frit/models/onnx/file.h"

namespace frit::onnx {

/// Whether an initialiser becomes a variable: floating numbers that are not one alone.
inline bool is_parameter(const Tensor& tensor) { return is_floating(tensor.dtype()) && tensor.rank() > 0; }

/// Brings a file's nodes into a graph, one after another.
class Importer {
 public:
  Importer(const File& file, const Scope& scope) : file_(file), scope_(scope), graph_(scope.graph()) {}

  Values run(const std::map<std::string, Value>& inputs);
  /// A graph that is a node's attribute, and reads values of the file's too.
  std::vector<Operand> run_inner(const GraphProto& graph, const std::vector<Operand>& inputs);

 private:
  void note_reads(const GraphProto& graph);
  void import(const NodeProto& node);
  void convert(const NodeProto& node, Convert emit);
  std::vector<Operand*> operands(const NodeProto& node);
  std::vector<Tensor> fold(const NodeProto& node, Convert emit, const std::vector<Operand*>& inputs);
  void keep(const NodeProto& node, const Values& results);
  void check_size();
  void refuse(const NodeProto& node, std::string_view why);

  const File& file_;
  const Scope& scope_;
  Graph& graph_;
  std::map<std::string, Operand> operands_;
  std::set<std::string> used_;  ///< what nodes read, and the outputs
  std::vector<std::string> refusals_;
  std::size_t seen_ = 0;         ///< of the graph's nodes
  std::int64_t made_bytes_ = 0;  ///< of their constants
};

}  // namespace frit::onnx
