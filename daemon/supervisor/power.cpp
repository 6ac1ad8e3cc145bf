#include "daemon/supervisor/power.h"

#include <cstdio>

namespace rumbo {
namespace {

constexpr const char* kSupplies = "/sys/class/power_supply";
constexpr const char* kSensors = "/sys/class/hwmon";

class SysfsPower final : public PowerSource {
 public:
  explicit SysfsPower(Root root) : root_(std::move(root)) {}

  PowerState Read() override {
    PowerState state;
    ReadSupplies(state);
    for (const std::string& chip : root_.List(kSensors))
      ReadSensors(std::string(kSensors) + "/" + chip, state);
    return state;
  }

 private:
  void ReadSupplies(PowerState& state) const {
    bool mains = false, discharging = false;
    double charge = 0;
    int batteries = 0;
    for (const std::string& name : root_.List(kSupplies)) {
      const std::string dir = std::string(kSupplies) + "/" + name;
      const std::string type = root_.Read(dir + "/type").text;
      if (type == "Mains" || type == "USB") mains = mains || root_.Read(dir + "/online").text == "1";
      if (type != "Battery" || root_.Read(dir + "/scope").text == "Device") continue;
      discharging = discharging || root_.Read(dir + "/status").text == "Discharging";
      const auto percent = ParseU64(root_.Read(dir + "/capacity").text);
      if (!percent || *percent > 100) continue;
      charge += static_cast<double>(*percent);
      ++batteries;
    }
    state.on_battery = discharging && !mains;
    if (batteries > 0) state.battery_percent = charge / batteries;
  }

  void ReadSensors(const std::string& dir, PowerState& state) const {
    for (const std::string& file : root_.List(dir)) {
      if (file.rfind("temp", 0) != 0 || file.size() < 7 || file.substr(file.size() - 6) != "_input") continue;
      const std::string stem = dir + "/" + file.substr(0, file.size() - 6);
      const auto now = ParseI64(root_.Read(stem + "_input").text);
      const auto critical = ParseI64(root_.Read(stem + "_crit").text);
      // Millidegrees. Boards report 0, negative or absurd limits for sensors that are not there.
      if (!now || !critical || *critical < 50'000 || *critical > 130'000 || *now < 0 || *now > 150'000)
        continue;
      const double share = static_cast<double>(*now) / static_cast<double>(*critical);
      if (state.hottest_share && share <= *state.hottest_share) continue;
      state.hottest_share = share;
      const std::string label = root_.Read(stem + "_label").text;
      char text[160];
      std::snprintf(text, sizeof text, "%.40s%s%.40s at %.0f of %.0f C",
                    root_.Read(dir + "/name").text.c_str(), label.empty() ? "" : " ", label.c_str(),
                    static_cast<double>(*now) / 1000, static_cast<double>(*critical) / 1000);
      state.hottest = text;
    }
  }

  const Root root_;
};

}  // namespace

std::unique_ptr<PowerSource> NewPowerSource(Root root) {
  return std::make_unique<SysfsPower>(std::move(root));
}

}  // namespace rumbo
