/*
 * Recording what is submitted to streams as a graph instead of running it.
 */
#pragma once

#include "cuda_graph.h"
#include "cuda_stream.h"

CUresult cuStreamBeginCapture(CUstream stream);
__typeof__(cuStreamBeginCapture) cuStreamBeginCapture_ptsz;
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
__typeof__(cuStreamBeginCapture_v2) cuStreamBeginCapture_v2_ptsz;
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependency_data,
                                     size_t dependency_count, CUstreamCaptureMode mode);
__typeof__(cuStreamBeginCaptureToGraph) cuStreamBeginCaptureToGraph_ptsz;
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
__typeof__(cuStreamEndCapture) cuStreamEndCapture_ptsz;
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id_out);
__typeof__(cuStreamGetCaptureInfo) cuStreamGetCaptureInfo_ptsz;
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out, size_t *dependency_count);
__typeof__(cuStreamGetCaptureInfo_v2) cuStreamGetCaptureInfo_v2_ptsz;
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edge_data_out, size_t *dependency_count);
__typeof__(cuStreamGetCaptureInfo_v3) cuStreamGetCaptureInfo_v3_ptsz;
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);
__typeof__(cuStreamIsCapturing) cuStreamIsCapturing_ptsz;
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                           size_t dependency_count, unsigned flags);
__typeof__(cuStreamUpdateCaptureDependencies) cuStreamUpdateCaptureDependencies_ptsz;
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependency_data,
                                              size_t dependency_count, unsigned flags);
__typeof__(cuStreamUpdateCaptureDependencies_v2) cuStreamUpdateCaptureDependencies_v2_ptsz;
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);
