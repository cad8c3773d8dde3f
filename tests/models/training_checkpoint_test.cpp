// Checkpoints that a training goes on from.

#include <gtest/gtest.h>

#include <array>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"
#include "frit/models/training/checkpoint.h"
#include "models/training_testing.h"

namespace frit {
namespace {

TEST(TrainingCheckpoint, GoesOnWithTheSameBitsFromEveryStep) {
  const TemporaryFolder folder;
  SmallTraining model;
  TrainStep whole = model.step();
  std::vector<double> losses;
  for (std::uint64_t n = 0; n < 7; ++n) {
    losses.push_back(whole(SmallTraining::batch(n)));
    save_training(folder / std::to_string(n), whole);
  }
  for (std::uint64_t from = 0; from < 7; ++from) {
    SmallTraining again;
    TrainStep resumed = again.step(Adam{.learning_rate = 0.01}, /*seed=*/99);
    restore_training(read_training(folder / std::to_string(from)), resumed);
    EXPECT_EQ(resumed.position().batches, static_cast<std::int64_t>(from) + 1);
    for (std::uint64_t n = from + 1; n < 7; ++n) EXPECT_EQ(resumed(SmallTraining::batch(n)), losses[n]);
    EXPECT_EQ(values(resumed.state()), values(whole.state())) << "from step " << from;
    EXPECT_EQ(resumed.learning_rate(), whole.learning_rate());
  }
}

/// Two steps of one State, one with averages, and groups.
struct TwoSteps {
  SmallTraining model;
  Value loss = model.loss();
  TrainStep all{loss,
                Adam{.learning_rate = 0.01},
                Device::cpu(),
                {.groups = {{.names = "*.bias", .optimizer = Adam{.learning_rate = 0.02}}}, .average_decay = 0.5}};
  TrainStep head{loss, Sgd{.learning_rate = 0.1, .momentum = 0.5}, all.shared_state(), {.freeze = {"conv.*", "norm.*"}, .name = "head"}};

  void run(std::uint64_t number) {
    all(SmallTraining::batch(number));
    head(SmallTraining::batch(number + 100));
  }
};

TEST(TrainingCheckpoint, HoldsSeveralStepsOfOneState) {
  const TemporaryFolder folder;
  TwoSteps whole, resumed;
  for (std::uint64_t n = 0; n < 2; ++n) whole.run(n);
  whole.head.set_learning_rate(0.05);
  save_training(folder / "file", std::array<const TrainStep*, 2>{&whole.all, &whole.head});
  const TensorFile file = read_training(folder / "file");
  restore_training(file, resumed.all);
  restore_training(file, resumed.head);
  EXPECT_EQ(resumed.head.learning_rate(), 0.05);
  EXPECT_EQ(resumed.all.position().batches, 2);
  for (TwoSteps* steps : {&whole, &resumed}) {
    for (std::uint64_t n = 2; n < 4; ++n) steps->run(n);
  }
  EXPECT_EQ(values(resumed.all.state()), values(whole.all.state()));
  EXPECT_EQ(values(*resumed.all.averaged()), values(*whole.all.averaged()));
  EXPECT_NE(values(*whole.all.averaged()).at("conv.weight"), values(whole.all.state()).at("conv.weight"));

  // The averages are a model's checkpoint of their own.
  save_checkpoint(folder / "averages", whole.all.graph(), *whole.all.averaged());
  State state;
  state.prepare(whole.all.graph());
  restore(read_safetensors(folder / "averages"), whole.all.graph(), state);
  EXPECT_EQ(values(state), values(*whole.all.averaged()));

  // And what the training's checkpoint gives for inference, unless it is asked for the parameters as they were last.
  save_training(folder / "all", std::array<const TrainStep*, 2>{&whole.all, &whole.head});
  restore(read_safetensors(folder / "all"), whole.all.graph(), state);
  EXPECT_EQ(values(state), values(*whole.all.averaged()));
  restore(read_safetensors(folder / "all"), whole.all.graph(), state, {.averages = false});
  EXPECT_EQ(values(state).at("conv.weight"), values(whole.all.state()).at("conv.weight"));
  State fresh(Device::cpu(), /*seed=*/5);
  fresh.prepare(whole.all.graph());
  const TwoSteps untouched;
  save_training(folder / "untouched", untouched.all);
  restore(read_safetensors(folder / "untouched"), whole.all.graph(), fresh);
  EXPECT_EQ(values(fresh).at("conv.weight"), values(untouched.all.state()).at("conv.weight")) << "there was no update to average";

  TwoSteps alone;
  save_training(folder / "alone", alone.all);
  expect_error(ErrorKind::format, "the metadata have no \"training/head\": not a checkpoint that a training can go on from",
               [&] { restore_training(read_training(folder / "alone"), alone.head); });
  SmallTraining other;
  TrainStep stranger = other.step();
  expect_error(ErrorKind::argument, "save_training: the steps do not share their State", [&] {
    save_training(folder / "x", std::array<const TrainStep*, 2>{&whole.all, &stranger});
  });
}

TEST(TrainingCheckpoint, SameStateGivesTheSameBytes) {
  const TemporaryFolder folder;
  SmallTraining model;
  TrainStep step = model.step();
  save_training(folder / "a", step, {{"note", "x"}});
  save_training(folder / "b", step, {{"note", "x"}});
  EXPECT_EQ(read_text(folder / "a", 1 << 20), read_text(folder / "b", 1 << 20));
}

TEST(TrainingCheckpoint, GivesItsModelForInference) {
  const TemporaryFolder folder;
  SmallTraining model;
  TrainStep step = model.step();
  step(SmallTraining::batch(1));
  step(SmallTraining::batch(2));
  save_training(folder / "file", step);
  State state(Device::cpu(), /*seed=*/5);
  state.prepare(step.graph());
  EXPECT_TRUE(restore(read_safetensors(folder / "file"), step.graph(), state).empty());
  EXPECT_EQ(state.at("conv.weight").to_vector<double>(), step.state().at("conv.weight").to_vector<double>());
  EXPECT_FALSE(state.contains("optimizer.step"));
}

/// Every one of so many changes of one bit is found, wherever in the file it is: header, metadata, names, data.
TEST(TrainingCheckpoint, EveryFlippedBitIsFound) {
  const TemporaryFolder folder;
  SmallTraining model;
  TrainStep step = model.step();
  step(SmallTraining::batch(1));
  save_training(folder / "file", step, {{"model", "small"}});
  const std::string good = read_text(folder / "file", 1 << 24);
  const std::uint64_t header = static_cast<unsigned char>(good[0]) + 256u * static_cast<unsigned char>(good[1]) + 8;
  int undetected = 0;
  for (std::uint64_t n = 0; n < 1500; ++n) {
    const auto words = philox(7, 0, n);
    const std::uint64_t place = n % 3 == 0 ? words[0] % header : words[0] % good.size();
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ (1 << words[1] % 8));
    write_text(folder / "bad", bad);
    try {
      read_training(folder / "bad");
      ++undetected;
      ADD_FAILURE() << "bit " << words[1] % 8 << " of byte " << place << " of " << good.size();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format) << error.what();
      EXPECT_NE(std::string(error.what()).find(folder / "bad"), std::string::npos) << error.what();
    }
    if (n % 50 != 0) continue;
    State state;
    state.prepare(step.graph());
    const auto before = values(state);
    EXPECT_THROW(restore(read_safetensors(folder / "bad"), step.graph(), state), Error);
    EXPECT_EQ(values(state), before) << "half a model was loaded";
  }
  EXPECT_EQ(undetected, 0);
  EXPECT_NO_THROW(read_training(folder / "file"));
}

TEST(TrainingCheckpoint, SaysWhatDoesNotFit) {
  const TemporaryFolder folder;
  SmallTraining model;
  TrainStep step = model.step();
  step(SmallTraining::batch(1));
  save_training(folder / "file", step);
  const auto refused = [&](const std::string& fragment, TrainStep& other, const std::string& name) {
    const auto before = values(other.state());
    expect_error(ErrorKind::format, fragment, [&] { restore_training(read_training(folder / name), other); });
    EXPECT_EQ(values(other.state()), before) << "half a training was loaded";
  };
  SmallTraining second, third;
  TrainStep sgd = second.step(Sgd{.momentum = 0.9});
  refused("optimizer: expected sgd momentum=0.9", sgd, "file");
  TrainStep decayed = third.step(Adam{.weight_decay = 0.5});
  refused("optimizer: expected adam", decayed, "file");

  Graph graph;
  const Value x = graph.input("x", {2, 3}), y = nn::linear(Scope(graph) / "linear", x, {.out_features = 2});
  TrainStep of_another(mean_squared_error(y, graph.input("y", {2, 2})), Adam{.learning_rate = 0.01});
  refused("\"linear.weight\" expected 2x3, got 3x64", of_another, "file");

  save_checkpoint(folder / "model", step);
  refused("not a checkpoint that a training can go on from", step, "model");

  TensorMap tensors = read_safetensors(folder / "file").tensors();
  Metadata metadata = read_safetensors(folder / "file").metadata();
  metadata["frit_version"] = "2";
  write_safetensors(folder / "newer", tensors, metadata);
  refused("checkpoint format version: expected 1, got 2", step, "newer");
}

}  // namespace
}  // namespace frit
