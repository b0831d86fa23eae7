// Recording a stream's work as graph nodes instead of doing it. The functions take the driver's lock themselves.
#pragma once

#include "simgpu/cuda/core.h"
#include "simgpu/cuda/graph/graph.h"
#include "simgpu/cuda/memory/transfer.h"
#include "simgpu/cuda/stream/stream.h"

namespace simgpu {

CUresult capture_copy(Driver *driver, Stream *stream, const CopyJob &job);
CUresult capture_fill(Driver *driver, Stream *stream, const FillJob &job);
CUresult capture_node(Driver *driver, Stream *stream, std::unique_ptr<GraphNode> node, GraphNode **added = nullptr);
CUresult capture_event_record(Driver *driver, Stream *stream, EventState *event);
CUresult capture_event_wait(Driver *driver, Stream *stream, EventState *event);
// A call that cannot be recorded spoils the capture it was made in.
CUresult forbid_in_capture(Driver *driver, Stream *stream);

}  // namespace simgpu
