// What every probe promises: devices/probe/probe.h. Each runs on trees that no kernel ever made, and whatever
// it adds must still assemble into a topology that holds together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "devices/api/topology_json.h"
#include "devices/pci/pci_probe.h"
#include "devices/probe/probe.h"
#include "devices/testing/machines.h"

namespace rumbo {
namespace {

std::vector<const Probe*> AllProbes() {
  std::vector<const Probe*> all{&PciProbe()};
  all.insert(all.end(), EnrichingProbes().begin(), EnrichingProbes().end());
  return all;
}

class ProbeContract : public ::testing::TestWithParam<const Probe*> {
 protected:
  Facts Read(const FakeTree& tree) {
    Facts facts;
    facts.live = false;
    facts.pci = ReadPci(tree.root());
    GetParam()->Read(tree.root(), facts.pci)(facts);
    return facts;
  }

  // Numbers are known or unknown, never more free than there is; ids resolve; JSON survives.
  void ExpectSound(const Facts& facts) {
    const Topology t = Assemble(facts);
    for (const MemoryPool& p : t.pools) {
      EXPECT_FALSE(p.source.empty()) << p.id;
      if (p.free_bytes && p.total_bytes) {
        EXPECT_LE(*p.free_bytes, *p.total_bytes) << p.id;
      }
      for (const MemoryLimit& l : p.limits) {
        for (const std::string& d : l.devices) EXPECT_NE(t.FindDevice(d), nullptr) << l.id;
        if (p.total_bytes && l.max_bytes && l.kind != LimitKind::kCgroup) {
          EXPECT_LE(*l.max_bytes, *p.total_bytes) << l.id;
        }
      }
    }
    for (const Device& d : t.devices) {
      for (const std::string& pool : d.pools) EXPECT_NE(t.FindPool(pool), nullptr) << d.id;
      EXPECT_TRUE(d.usable || !d.reason.empty()) << d.id;
      EXPECT_TRUE(d.accessible || !d.usable) << d.id;
      EXPECT_TRUE(d.present || !d.accessible) << d.id;
      if (!d.parent.empty()) {
        EXPECT_NE(t.FindDevice(d.parent), nullptr) << d.id;
      }
    }
    EXPECT_TRUE(TopologyFromJson(TopologyToJson(t)).ok());
  }
};

// A machine with a bit of everything.
void AddEverything(FakeTree& tree) {
  AddStrixHalo(tree, 512 * kMiB, 96 * kGiB, 124, 60);
  AddR9700(tree, 0);
  AddR9700(tree, 1);
  AddPci(tree, {"0000:c6:00.1", "0x1022", "0x17f0", "0x11", "0x118000", "amdxdna"});
  tree.Link("/sys/class/accel/accel0/device", "../../../bus/pci/devices/0000:c6:00.1")
      .File("/dev/accel/accel0", "");
  AddPci(tree, {"0000:83:00.0", "0x10de", "0x2335", "0xa1", "0x030200", "nvidia"});
  AddPci(tree, {"0000:a3:00.0", "0x8086", "0xe20b", "0x00", "0x030000", "xe"});
  tree.File("/proc/self/cgroup", "0::/a/b\n")
      .File("/sys/fs/cgroup/a/b/memory.max", "9000000000\n")
      .File("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  tree.File("/proc/cpuinfo", "processor: 0\nmodel name: x\nphysical id: 0\ncore id: 0\nflags: avx2\n");
}

TEST_P(ProbeContract, HasAName) { EXPECT_FALSE(GetParam()->name().empty()); }

TEST_P(ProbeContract, AnEmptyTreeIsNoError) {
  FakeTree tree;
  ExpectSound(Read(tree));
}

TEST_P(ProbeContract, ReadsTheSameTwice) {
  FakeTree tree;
  AddEverything(tree);
  EXPECT_EQ(TopologyToJson(Assemble(Read(tree))), TopologyToJson(Assemble(Read(tree))));
  ExpectSound(Read(tree));
}

TEST_P(ProbeContract, WritesNothing) {
  FakeTree tree;
  AddEverything(tree);
  const auto snapshot = [&] {
    std::string all;
    for (const auto& e : std::filesystem::recursive_directory_iterator(tree.dir())) {
      struct stat info;
      lstat(e.path().c_str(), &info);
      all += e.path().string() + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
             std::to_string(info.st_mtim.tv_nsec) + ":" + std::to_string(info.st_size) + "\n";
    }
    return all;
  };
  const std::string before = snapshot();
  Read(tree);
  EXPECT_EQ(snapshot(), before);
}

TEST_P(ProbeContract, EveryFileMayBeNonsense) {
  const std::string nonsense[] = {"",
                                  "\n",
                                  std::string(4096, '\0'),
                                  "-1\n",
                                  "18446744073709551615\n",
                                  "99999999999999999999999\n",
                                  "0x\n",
                                  "N/A\n",
                                  "\xff\xfe\xfa",
                                  std::string(70000, 'A'),
                                  "1\n2\n3\n",
                                  ":::::",
                                  "0-99999999\n",
                                  "max max max"};
  for (const std::string& text : nonsense) {
    FakeTree tree;
    AddEverything(tree);
    std::vector<std::filesystem::path> files;
    for (const auto& e : std::filesystem::recursive_directory_iterator(tree.dir())) {
      if (e.is_regular_file() && !e.is_symlink()) files.push_back(e.path());
    }
    for (const auto& file : files) std::ofstream(file, std::ios::binary) << text;
    ExpectSound(Read(tree));
  }
}

TEST_P(ProbeContract, AnyHalfOfTheTreeMayBeMissing) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    FakeTree tree;
    AddEverything(tree);
    std::mt19937 random(seed);
    std::vector<std::filesystem::path> files;
    for (const auto& e : std::filesystem::recursive_directory_iterator(tree.dir())) {
      if (!e.is_directory() || e.is_symlink()) files.push_back(e.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      if (random() % 2 == 0) std::filesystem::remove(file);
    }
    SCOPED_TRACE(seed);
    ExpectSound(Read(tree));
  }
}

TEST_P(ProbeContract, FilesMayBeFoldersLoopsAndPipes) {
  FakeTree tree;
  AddEverything(tree);
  int n = 0;
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::recursive_directory_iterator(tree.dir())) {
    if (e.is_regular_file() && !e.is_symlink()) files.push_back(e.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::filesystem::remove(file);
    switch (n++ % 3) {
      case 0:
        std::filesystem::create_directory(file);
        break;
      case 1:
        std::filesystem::create_symlink(file, file);
        break;  // a loop
      case 2:
        ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
        break;  // reading it would block
    }
  }
  ExpectSound(Read(tree));
}

TEST_P(ProbeContract, ADirectoryLoopEnds) {
  FakeTree tree;
  AddEverything(tree);
  tree.Link("/sys/bus/pci/devices/0000:ff:00.0", ".").Link("/sys/class/drm/card9", "../drm");
  tree.Link("/sys/class/kfd/kfd/topology/nodes/7", "../nodes").Link("/sys/fs/cgroup/a/b/a", "../../a");
  tree.File("/proc/self/cgroup", "0::/a/b/a/b/a/b/a/b/a/b/a/b/a/b/a/b/a/b/a/b/a/b\n");
  ExpectSound(Read(tree));
}

TEST_P(ProbeContract, ThousandsOfEntriesAreBounded) {
  FakeTree tree;
  for (int i = 0; i < 1500; ++i) {
    tree.File("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(i) + "/properties",
              "simd_count 4\nsimd_per_cu 2\ngfx_target_version 110501\nlocation_id 1280\nunique_id "
              "5\ndrm_render_minor " +
                  std::to_string(i + 1) + "\n");
  }
  ExpectSound(Read(tree));
}

INSTANTIATE_TEST_SUITE_P(EveryProbe, ProbeContract, ::testing::ValuesIn(AllProbes()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace rumbo
