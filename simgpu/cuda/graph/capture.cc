#include "simgpu/cuda/graph/capture.h"

#include <algorithm>

namespace simgpu {
namespace {

CUresult state_of(Stream *stream) {
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

// Takes every stream out of the capture; the graph, if it is to be thrown away, goes with it.
void end_capture(Driver *driver, const std::shared_ptr<Capture> &capture, bool discard) {
  for (Stream *joined : capture->joined) {
    joined->capture = nullptr;
    joined->capture_tail.clear();
  }
  capture->joined.clear();
  if (discard && capture->owns_graph) {
    capture->graph->destroyed = true;
    release_graph(driver, capture->graph);
  }
}

// Whether the stream would have to wait for one that is being captured. Expects the driver's lock.
bool implies_capture(Stream *stream) {
  const auto implied = [](Stream *other) {
    return other->capture != nullptr && (other->flags & CU_STREAM_NON_BLOCKING) == 0;
  };
  const std::set<Stream *> &all = stream->context->streams;
  return stream->legacy && std::any_of(all.begin(), all.end(), implied);
}

}  // namespace

CUresult capture_node(Driver *driver, Stream *stream, std::unique_ptr<GraphNode> node, GraphNode **added) {
  DriverLock lock(driver->mutex);
  if (CUresult result = state_of(stream)) return result;
  if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    if (CUresult result = prepare_alloc_node(driver, node.get())) return result;
  GraphNode *fresh = add_node(stream->capture->graph, std::move(node), stream->capture_tail);
  stream->capture_tail = {fresh};
  if (added != nullptr) *added = fresh;
  return CUDA_SUCCESS;
}

CUresult capture_copy(Driver *driver, Stream *stream, const CopyJob &job) {
  auto node = std::make_unique<GraphNode>();
  node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node->copy = job;
  return capture_node(driver, stream, std::move(node));
}

CUresult capture_fill(Driver *driver, Stream *stream, const FillJob &job) {
  auto node = std::make_unique<GraphNode>();
  node->type = CU_GRAPH_NODE_TYPE_MEMSET;
  node->fill = job;
  return capture_node(driver, stream, std::move(node));
}

CUresult capture_event_record(Driver *driver, Stream *stream, EventState *event) {
  DriverLock lock(driver->mutex);
  if (CUresult result = state_of(stream)) return result;
  event->capture = stream->capture;
  event->capture_tail = stream->capture_tail;
  return CUDA_SUCCESS;
}

// Waiting for an event that was recorded in a capture makes the waiting stream part of that capture.
CUresult capture_event_wait(Driver *driver, Stream *stream, EventState *event) {
  DriverLock lock(driver->mutex);
  if (event->capture == nullptr || event->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (stream->capture != nullptr && stream->capture != event->capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  stream->capture = event->capture;
  stream->capture->joined.insert(stream);
  for (GraphNode *node : event->capture_tail)
    if (std::find(stream->capture_tail.begin(), stream->capture_tail.end(), node) == stream->capture_tail.end())
      stream->capture_tail.push_back(node);
  return CUDA_SUCCESS;
}

CUresult forbid_in_capture(Driver *driver, Stream *stream) {
  DriverLock lock(driver->mutex);
  if (stream->capture != nullptr) stream->capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult forbid_unsafe_call_slowly(Driver *driver) {
  CUstreamCaptureMode caller = t_thread.capture_mode;
  if (caller == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  DriverLock lock(driver->mutex);
  for (Context *context : driver->contexts)
    for (Stream *stream : context->streams) {
      Capture *capture = stream->capture.get();
      if (capture == nullptr || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
      bool everywhere = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && caller == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (!everywhere && capture->thread != std::this_thread::get_id()) continue;
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  return result;
}

CUresult forbid_implicit_order_slowly(Driver *driver, Stream *legacy) {
  CUresult result = CUDA_SUCCESS;
  DriverLock lock(driver->mutex);
  for (Stream *stream : legacy->context->streams) {
    if (stream->capture == nullptr || (stream->flags & CU_STREAM_NON_BLOCKING) != 0) continue;
    stream->capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

void leave_capture(Driver *driver, Stream *stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return;
  capture->invalid = true;
  if (capture->origin == stream) {
    end_capture(driver, capture, true);
  } else {
    capture->joined.erase(stream);
  }
}

namespace {

CUresult begin(CUstream handle, CUstreamCaptureMode mode, bool per_thread, Graph *into, const CUgraphNode *needs,
               size_t count) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  DriverLock lock(driver->mutex);
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->graph = into != nullptr ? into : new Graph;
  capture->owns_graph = into == nullptr;
  capture->origin = stream;
  capture->mode = mode;
  capture->id = driver->next_id++;
  capture->joined = {stream};
  stream->capture = capture;
  stream->capture_tail.clear();
  for (size_t i = 0; i < count; i++)
    if (GraphNode *node = valid_node(needs[i])) stream->capture_tail.push_back(node);
  return CUDA_SUCCESS;
}

CUresult end(CUstream handle, CUgraph *out, bool per_thread) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DriverLock lock(driver->mutex);
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (out != nullptr) *out = nullptr;
  if (capture->invalid) {
    end_capture(driver, capture, true);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  // Work on another stream that the origin never waited for again would be lost.
  std::set<GraphNode *> reached;
  std::vector<GraphNode *> open = stream->capture_tail;
  while (!open.empty()) {
    GraphNode *node = open.back();
    open.pop_back();
    if (reached.insert(node).second) open.insert(open.end(), node->needs.begin(), node->needs.end());
  }
  for (Stream *other : capture->joined)
    for (GraphNode *node : other->capture_tail)
      if (reached.count(node) == 0) {
        end_capture(driver, capture, true);
        return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
  if (out != nullptr) *out = reinterpret_cast<CUgraph>(capture->graph);
  end_capture(driver, capture, false);
  return CUDA_SUCCESS;
}

CUresult status(CUstream handle, bool per_thread, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count) {
  SIMGPU_CONTEXT(driver, context);
  Stream *stream = find_stream(driver, context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DriverLock lock(driver->mutex);
  if (implies_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *out = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
         : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (*out != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->graph);
  if (needs != nullptr) *needs = reinterpret_cast<const CUgraphNode *>(stream->capture_tail.data());
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

extern "C" {

CUresult cuStreamBeginCapture(CUstream s) {
  return begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, false, nullptr, nullptr, 0);
}
CUresult cuStreamBeginCapture_ptsz(CUstream s) {
  return begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, true, nullptr, nullptr, 0);
}
CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode m) { return begin(s, m, false, nullptr, nullptr, 0); }
CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, CUstreamCaptureMode m) {
  return begin(s, m, true, nullptr, nullptr, 0);
}
CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *,
                                     size_t count, CUstreamCaptureMode m) {
  Graph *into = valid_graph(graph);
  return into != nullptr ? begin(s, m, false, into, needs, count) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream s, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *,
                                          size_t count, CUstreamCaptureMode m) {
  Graph *into = valid_graph(graph);
  return into != nullptr ? begin(s, m, true, into, needs, count) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) { return end(s, graph, false); }
CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph *graph) { return end(s, graph, true); }

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out) {
  return status(s, false, out, nullptr, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamIsCapturing_ptsz(CUstream s, CUstreamCaptureStatus *out) {
  return status(s, true, out, nullptr, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id) {
  return status(s, false, out, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_ptsz(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id) {
  return status(s, true, out, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **needs, size_t *count) {
  return status(s, false, out, id, graph, needs, nullptr, count);
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                                        const CUgraphNode **needs, size_t *count) {
  return status(s, true, out, id, graph, needs, nullptr, count);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count) {
  return status(s, false, out, id, graph, needs, edges, count);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                                        const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count) {
  return status(s, true, out, id, graph, needs, edges, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, t_thread.capture_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
