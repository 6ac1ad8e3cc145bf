#include "daemon/supervisor/power.h"

#include "devices/testing/fake_tree.h"

namespace rumbo {
namespace {

TEST(PowerTest, BatteryCountsOnlyWithoutMainsAndOnlyTheMachinesOwn) {
  FakeTree tree;
  const std::string dir = "/sys/class/power_supply";
  tree.File(dir + "/BAT0/type", "Battery\n")
      .File(dir + "/BAT0/status", "Discharging\n")
      .File(dir + "/BAT0/capacity", "17\n");
  tree.File(dir + "/mouse/type", "Battery\n")
      .File(dir + "/mouse/scope", "Device\n")
      .File(dir + "/mouse/capacity", "3\n");
  tree.File(dir + "/AC/type", "Mains\n").File(dir + "/AC/online", "0\n");
  const auto power = NewPowerSource(tree.root());
  PowerState state = power->Read();
  EXPECT_TRUE(state.on_battery);
  EXPECT_EQ(state.battery_percent, 17);
  tree.File(dir + "/AC/online", "1\n");
  EXPECT_FALSE(power->Read().on_battery);
}

TEST(PowerTest, HottestSensorIsTheOneNearestToItsLimit) {
  FakeTree tree;
  tree.File("/sys/class/hwmon/hwmon0/name", "k10temp\n")
      .File("/sys/class/hwmon/hwmon0/temp1_input", "91000\n");
  tree.File("/sys/class/hwmon/hwmon0/temp1_crit", "95000\n")
      .File("/sys/class/hwmon/hwmon0/temp1_label", "Tctl\n");
  tree.File("/sys/class/hwmon/hwmon1/name", "nvme\n").File("/sys/class/hwmon/hwmon1/temp1_input", "60000\n");
  tree.File("/sys/class/hwmon/hwmon1/temp1_crit", "84850\n");
  tree.File("/sys/class/hwmon/hwmon2/name", "board\n")
      .File("/sys/class/hwmon/hwmon2/temp3_input", "127000\n");
  tree.File("/sys/class/hwmon/hwmon2/temp3_crit", "0\n");  // no such sensor
  const PowerState state = NewPowerSource(tree.root())->Read();
  ASSERT_TRUE(state.hottest_share);
  EXPECT_NEAR(*state.hottest_share, 91.0 / 95, 1e-9);
  EXPECT_EQ(state.hottest, "k10temp Tctl at 91 of 95 C");
}

TEST(PowerTest, MachineWithoutEitherSaysNothing) {
  FakeTree tree;
  const PowerState state = NewPowerSource(tree.root())->Read();
  EXPECT_FALSE(state.on_battery);
  EXPECT_FALSE(state.battery_percent);
  EXPECT_FALSE(state.hottest_share);
}

}  // namespace
}  // namespace rumbo
