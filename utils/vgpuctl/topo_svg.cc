// The same as a drawing: a box for each NUMA node, in it a bar for each GPU, on it the jobs by what they may use; darker is
// what they use.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "node/values.h"
#include "topology.h"

namespace vgpu::ctl {

namespace {

constexpr double kBarWidth = 480;
constexpr double kBarHeight = 34;
constexpr double kGpuHeight = 70;
constexpr double kHeading = 30;
constexpr double kMargin = 12;
constexpr const char *kColors[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d"};

std::string escaped(const std::string &text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string box(double x, double y, double width, double height, const std::string &style) {
  char text[256];
  std::snprintf(text, sizeof text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n", x, y, width,
                height, style.c_str());
  return text;
}

std::string label(double x, double y, const std::string &words) {
  char place[64];
  std::snprintf(place, sizeof place, "<text x=\"%.1f\" y=\"%.1f\">", x, y);
  return place + escaped(words) + "</text>\n";
}

std::string draw_gpu(const PlacedGpu &gpu, double x, double y) {
  const region::DeviceIdentity &identity = gpu.device.identity;
  std::string text = label(
      x, y + 14, "GPU " + gpu.number + "  " + identity.pci_bus_id + "  " + node::format_bytes(identity.memory_bytes));
  const double top = y + 20;
  text += box(x, top, kBarWidth, kBarHeight, "fill=\"#f4f4f4\" stroke=\"#444\"");
  // A site that overcommits promises more than there is.
  std::uint64_t promised = 0;
  for (const Tenant &tenant : gpu.tenants) promised += tenant.limit;
  const auto whole = static_cast<double>(std::max<std::uint64_t>({promised, identity.memory_bytes, 1}));
  double at = x;
  for (std::size_t i = 0; i < gpu.tenants.size(); ++i) {
    const Tenant &tenant = gpu.tenants[i];
    const double width = kBarWidth * static_cast<double>(tenant.limit) / whole;
    const double used = std::min(width, kBarWidth * static_cast<double>(tenant.used.value_or(0)) / whole);
    const std::string color = kColors[i % std::size(kColors)];
    text += box(at, top, width, kBarHeight, "fill=\"" + color + "\" fill-opacity=\"0.35\" stroke=\"#444\"");
    text += box(at, top, used, kBarHeight, "fill=\"" + color + "\"");
    text += label(at + 4, top + 21, tenant.job + " " + tenant.user);
    at += width;
  }
  return text;
}

}  // namespace

std::string topology_svg(const std::string &host, const std::vector<NumaGroup> &groups) {
  const double width = kBarWidth + 4 * kMargin;
  std::string body = label(kMargin, 20, host);
  double y = kHeading;
  for (const NumaGroup &numa : groups) {
    const double height = kHeading + kGpuHeight * static_cast<double>(numa.gpus.size());
    body += box(kMargin, y, kBarWidth + 2 * kMargin, height, "fill=\"none\" stroke=\"#888\"");
    body += label(2 * kMargin, y + 18,
                  numa.node.number < 0 ? "NUMA node unknown"
                                       : "NUMA node " + std::to_string(numa.node.number) + ", cores " + numa.node.cpus);
    double gpu_y = y + kHeading - 4;
    for (const PlacedGpu &gpu : numa.gpus) {
      body += draw_gpu(gpu, 2 * kMargin, gpu_y);
      gpu_y += kGpuHeight;
    }
    y += height + kMargin;
  }
  char head[256];
  std::snprintf(head, sizeof head,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n",
                width, y);
  return head + body + "</svg>\n";
}

}  // namespace vgpu::ctl
