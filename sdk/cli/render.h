#pragma once

#include <map>
#include <string>

#include "rumbo/types.h"
#include "sdk/cli/screen.h"

// What people see, as text. Pure: the same value on the same screen gives the same text, and every text of
// others goes through Safe.
namespace rumbo::cli {

// Pools with their limits and devices as a tree.
std::string RenderTopology(const Topology& topology, const Screen& screen);

// One screen: what was chosen, its memory, what is expected, why, and what was rejected. `all`: every
// rejection in full, also of engines that are not installed.
std::string RenderPlan(const Plan& plan, const Screen& screen, bool all = false);
std::string RenderExplanation(const Explanation& explanation, const Screen& screen);

// `now_s`: seconds since the epoch.
std::string RenderInstances(const InstanceList& list, int64_t now_s, const Screen& screen);
// The daemon at a glance: totals, then its instances with what they give per second, by instance id.
std::string RenderTop(const DaemonStatus& status, const InstanceList& list,
                      const std::map<std::string, double>& tokens_per_second, int64_t now_s,
                      const Screen& screen);
std::string RenderModels(const ModelList& list, const Screen& screen);
std::string RenderModel(const ModelDetails& details, const Screen& screen);
std::string RenderPullPlan(const PullPlan& plan, const Screen& screen);
// One line: what is taken and why.
std::string RenderPullChoice(const PullPlan& plan, const Screen& screen);
std::string RenderSearch(const SearchHits& hits, const Screen& screen);
std::string RenderVerified(const VerifiedModels& result, const Screen& screen);
std::string RenderGarbage(const Garbage& garbage, bool dry_run, const Screen& screen);
std::string RenderCached(const CachedModels& models, const Screen& screen);
std::string RenderCheck(const CheckReport& report, const Screen& screen);
std::string RenderDoctor(const DoctorReport& report, const Screen& screen);
std::string RenderEngines(const EngineList& engines, const Screen& screen);
std::string RenderEngine(const Engine& engine, const Screen& screen);
std::string RenderStatus(const DaemonStatus& status, int64_t now_s, const Screen& screen);
std::string RenderAdvice(const AdviceTable& table, const Screen& screen);
// The same as comma-separated values (RFC 4180); unknown numbers are empty.
std::string AdviceCsv(const AdviceTable& table);

// "llamacpp (cpu) on cpu0".
std::string Placement(const std::string& engine, const std::string& backend,
                      const std::vector<std::string>& devices);
// "llamacpp native (cpu) on cpu0".
std::string Placement(const std::string& engine, const std::string& build, const std::string& backend,
                      const std::vector<std::string>& devices);

// The bytes of all items.
uint64_t SumOf(const std::vector<MemoryItem>& items);

}  // namespace rumbo::cli
