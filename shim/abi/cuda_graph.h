/*
 * Graphs: building, instantiating, updating and launching them.
 */
#pragma once

#include "cuda_graph_node.h"

typedef enum {
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
    CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 4,
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8,
} CUgraphInstantiate_flags;

typedef enum {
    CUDA_GRAPH_INSTANTIATE_SUCCESS = 0,
    CUDA_GRAPH_INSTANTIATE_ERROR = 1,
    CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2,
    CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3,
    CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4,
} CUgraphInstantiateResult;

typedef struct {
    cuuint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef enum {
    CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
    CU_GRAPH_EXEC_UPDATE_ERROR = 1,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
    CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = 4,
    CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6,
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
    CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = 8,
} CUgraphExecUpdateResult;

typedef struct {
    CUgraphExecUpdateResult result;
    CUgraphNode errorNode;
    CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef enum {
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
    CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
} CUgraphMem_attribute;

typedef enum {
    CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE = 1,
    CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS = 4,
    CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES = 1 << 10,
} CUgraphDebugDot_flags;

typedef enum {
    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
} CUuserObject_flags;

typedef enum {
    CU_GRAPH_USER_OBJECT_MOVE = 1,
} CUuserObjectRetain_flags;

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *graph_node, CUgraph graph,
                                  const CUgraphNode *dependencies, size_t dependency_count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphAddChildGraphNode(CUgraphNode *graph_node, CUgraph graph,
                                  const CUgraphNode *dependencies, size_t dependency_count,
                                  CUgraph child_graph);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t dependency_count);
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edge_data, size_t dependency_count);
CUresult cuGraphAddEmptyNode(CUgraphNode *graph_node, CUgraph graph,
                             const CUgraphNode *dependencies, size_t dependency_count);
CUresult cuGraphAddEventRecordNode(CUgraphNode *graph_node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t dependency_count,
                                   CUevent event);
CUresult cuGraphAddEventWaitNode(CUgraphNode *graph_node, CUgraph graph,
                                 const CUgraphNode *dependencies, size_t dependency_count,
                                 CUevent event);
CUresult cuGraphAddHostNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t dependency_count, const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphAddKernelNode(CUgraphNode *graph_node, CUgraph graph,
                              const CUgraphNode *dependencies, size_t dependency_count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *graph_node, CUgraph graph,
                                 const CUgraphNode *dependencies, size_t dependency_count,
                                 const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphAddMemAllocNode(CUgraphNode *graph_node, CUgraph graph,
                                const CUgraphNode *dependencies, size_t dependency_count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *node_params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *graph_node, CUgraph graph,
                               const CUgraphNode *dependencies, size_t dependency_count,
                               CUdeviceptr address);
CUresult cuGraphAddMemcpyNode(CUgraphNode *graph_node, CUgraph graph,
                              const CUgraphNode *dependencies, size_t dependency_count,
                              const CUDA_MEMCPY3D *copy_params, CUcontext context);
CUresult cuGraphAddMemsetNode(CUgraphNode *graph_node, CUgraph graph,
                              const CUgraphNode *dependencies, size_t dependency_count,
                              const CUDA_MEMSET_NODE_PARAMS *memset_params, CUcontext context);
CUresult cuGraphAddNode(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t dependency_count, CUgraphNodeParams *node_params);
CUresult cuGraphAddNode_v2(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t dependency_count,
                           CUgraphNodeParams *node_params);
CUresult cuGraphAddNode_v3(CUgraphNode *graph_node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t dependency_count,
                           CUgraphNodeParams *node_params);
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params_out);
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphClone(CUgraph *graph_clone, CUgraph original_graph);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphDestroyNode(CUgraphNode node);
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event_out);
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event_out);
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event);
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *node_params);
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                            CUgraph child_graph);
CUresult cuGraphExecDestroy(CUgraphExec graph_exec);
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec graph_exec, CUgraphNode node,
                                            CUevent event);
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec graph_exec, CUgraphNode node, CUevent event);
CUresult cuGraphExecGetFlags(CUgraphExec graph_exec, cuuint64_t *flags);
CUresult cuGraphExecGetId(CUgraphExec graph_exec, unsigned *graph_id);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph_exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy_params, CUcontext context);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *memset_params,
                                        CUcontext context);
CUresult cuGraphExecNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                  CUgraphNodeParams *node_params);
CUresult cuGraphExecUpdate(CUgraphExec graph_exec, CUgraph graph, CUgraphNode *error_node_out,
                           CUgraphExecUpdateResult *update_result_out);
CUresult cuGraphExecUpdate_v2(CUgraphExec graph_exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result_info);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *num_edges);
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edge_data, size_t *num_edges);
CUresult cuGraphGetId(CUgraph graph, unsigned *graph_id);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *num_nodes);
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *root_nodes, size_t *num_root_nodes);
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *node_params);
CUresult cuGraphInstantiate(CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node,
                            char *log_buffer, size_t buffer_size);
CUresult cuGraphInstantiate_v2(CUgraphExec *graph_exec, CUgraph graph, CUgraphNode *error_node,
                               char *log_buffer, size_t buffer_size);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *graph_exec, CUgraph graph,
                                     unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *graph_exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params);
__typeof__(cuGraphInstantiateWithParams) cuGraphInstantiateWithParams_ptsz;
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src);
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value_out);
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value);
CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                    const CUDA_KERNEL_NODE_PARAMS_v1 *node_params);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS *node_params);
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
__typeof__(cuGraphLaunch) cuGraphLaunch_ptsz;
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params_out);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr_out);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *node_params);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *node_params);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *node_params);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *node_params);
CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original_node, CUgraph cloned_graph);
CUresult cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies,
                                    size_t *dependency_count);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edge_data, size_t *dependency_count);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependent_nodes,
                                      size_t *num_dependent_nodes);
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependent_nodes,
                                         CUgraphEdgeData *edge_data, size_t *num_dependent_nodes);
CUresult cuGraphNodeGetEnabled(CUgraphExec graph_exec, CUgraphNode node, unsigned *is_enabled);
CUresult cuGraphNodeGetLocalId(CUgraphNode node, unsigned *node_id);
CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *node_params);
CUresult cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long *tools_node_id);
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type);
CUresult cuGraphNodeSetEnabled(CUgraphExec graph_exec, CUgraphNode node, unsigned is_enabled);
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *node_params);
CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *node_params);
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count);
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t dependency_count);
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edge_data, size_t dependency_count);
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags);
CUresult cuGraphUpload(CUgraphExec graph, CUstream stream);
__typeof__(cuGraphUpload) cuGraphUpload_ptsz;
CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned initial_refcount, unsigned flags);
CUresult cuUserObjectRelease(CUuserObject object, unsigned count);
CUresult cuUserObjectRetain(CUuserObject object, unsigned count);

CUresult cuDeviceGraphMemTrim(CUdevice device);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
