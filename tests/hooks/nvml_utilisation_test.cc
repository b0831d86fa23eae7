// How busy a device is: a job sees its own part, where NVML says whose it is.
#include <fstream>

#include "nvml_support.h"

namespace vgpu::test {

namespace {

class UtilisationView : public testing::Test {
 protected:
  UtilisationView() {
    for (Client *client : {&first_, &second_, &other_, &stranger_}) EXPECT_EQ("0", client->ask("ctx 0"));
  }
  ~UtilisationView() override { std::filesystem::remove(file()); }

  static std::string file() { return std::string(std::getenv("SIMGPU_NODE")) + "/utilisation"; }

  struct Busy {
    const Client *client;
    const char *percentages;  // SM, memory, encoder, decoder
  };
  static void set(const std::vector<Busy> &rows) {
    std::ofstream out(file());
    for (const Busy &row : rows) out << "0 " << row.client->host_pid() << ' ' << row.percentages << '\n';
  }

  static std::string sample(const Client &client, const char *percentages) {
    return " " + std::to_string(client.host_pid()) + "=" + percentages;
  }

  Job job_, other_job_;
  Client first_{&job_}, second_{&job_}, other_{&other_job_}, stranger_{nullptr};
};

TEST_F(UtilisationView, SamplesAreOfTheJobsProcesses) {
  set({{&first_, "10 11 12 13"}, {&second_, "0 0 0 0"}, {&other_, "20 21 22 23"}, {&stranger_, "30 1 2 3"}});
  EXPECT_EQ("0 1" + sample(first_, "10/11/12/13"), first_.ask("utilisation 0 64"));
  EXPECT_EQ("0 1" + sample(first_, "10/11/12/13"), second_.ask("utilisation 0 1"));
  EXPECT_EQ("7 1", first_.ask("utilisation 0 0"));
  EXPECT_EQ("0 1" + sample(other_, "20/21/22/23"), other_.ask("utilisation 0 64"));
  EXPECT_EQ("0 3", stranger_.ask("utilisation 0 64").substr(0, 3));
  EXPECT_EQ("0 1" + sample(first_, "10/11"), first_.ask("utilisationinfo 0 64 1"));
  EXPECT_EQ("7 1", first_.ask("utilisationinfo 0 0 1"));
  EXPECT_EQ("25 64", first_.ask("utilisationinfo 0 64 33554456"));
  EXPECT_EQ("0 3", stranger_.ask("utilisationinfo 0 64 1").substr(0, 3));
}

TEST_F(UtilisationView, AJobThatIsIdleHasNoSamples) {
  set({{&other_, "20 21 22 23"}});
  EXPECT_EQ("6 0", first_.ask("utilisation 0 64"));
  EXPECT_EQ("6 0", first_.ask("utilisation 0 0"));
  EXPECT_EQ("6 0", first_.ask("utilisationinfo 0 64 1"));
  EXPECT_EQ("0 0 21 0 0 0 21 20", first_.ask("rates 0"));
}

TEST_F(UtilisationView, EncoderSessionsAreOfTheJobsProcesses) {
  set({{&first_, "0 0 5 0"}, {&second_, "9 0 0 0"}, {&other_, "0 0 7 0"}, {&stranger_, "0 0 8 0"}});
  EXPECT_EQ("0 1 32 " + std::to_string(first_.host_pid()), first_.ask("sessions Encoder 0 8"));
  EXPECT_EQ("0 1 32 " + std::to_string(other_.host_pid()), other_.ask("sessions Encoder 0 1"));
  EXPECT_EQ("0 1 0", first_.ask("sessions Encoder 0 0")) << "how many are there?";
  EXPECT_EQ("0 3 0", stranger_.ask("sessions Encoder 0 0"));
  EXPECT_EQ("7 3 0", stranger_.ask("sessions Encoder 0 2"));
  EXPECT_EQ("2", first_.ask("nowhere EncoderSessions 0"));
  set({{&first_, "0 0 5 0"}, {&second_, "0 0 5 0"}});
  EXPECT_EQ("7 2 0", first_.ask("sessions Encoder 0 1"));
  EXPECT_EQ("0 0 0", other_.ask("sessions Encoder 0 1"));
  EXPECT_EQ("0 0 0", first_.ask("sessions FBC 0 4"));
}

TEST_F(UtilisationView, RatesAreTheJobsShare) {
  set({{&first_, "10 1 3 5"}, {&second_, "15 1 4 6"}, {&other_, "20 1 7 8"}, {&stranger_, "30 1 0 0"}});
  // Memory is a bandwidth, and the history is the device's: nobody knows whose.
  EXPECT_EQ("0 25 4 7 11 25 4 75", first_.ask("rates 0"));
  EXPECT_EQ("0 20 4 7 8 20 4 75", other_.ask("rates 0"));
  EXPECT_EQ("0 75 4 14 19 75 4 75", stranger_.ask("rates 0"));
}

TEST_F(UtilisationView, AJobsShareIsNeverMoreThanThereIs) {
  set({{&first_, "90 1 60 0"}, {&second_, "80 1 70 0"}});
  EXPECT_EQ("0 100 2 100 0 100 2 100", first_.ask("rates 0"));
}

TEST_F(UtilisationView, WhatIsNotInADriverIsNotThereForTheJobEither) {
  const std::map<std::string, std::string> old = {
      {"LD_LIBRARY_PATH", program_directory() + "/../../simgpu/535:" + std::getenv("LD_LIBRARY_PATH")}};
  Client client(&job_, Where::here, old);
  EXPECT_EQ("13 64", client.ask("utilisationinfo 0 64 1"));
}

}  // namespace

}  // namespace vgpu::test
