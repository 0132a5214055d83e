/*
 * Nodes one kind at a time: adding them, and reading and changing their parameters.
 */
#include <string.h>

#include "graph.h"
#include "graph_exec.h"

/* --- shared by all kinds ------------------------------------------------------------------- */

CUresult node_show(CUgraphNode handle, CUgraphNodeType type, CUgraphNodeParams *parameters)
{
    struct node *node = NULL;
    TRY(driver_check());
    order_lock();
    CUresult result = node_get(handle, &node);
    if (result == CUDA_SUCCESS && node->payload.type != type)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = payload_write(&node->payload, parameters);
    order_unlock();
    return result;
}

CUresult node_change(CUgraphNode handle, CUgraphNodeParams *parameters)
{
    struct node *node = NULL;
    struct payload payload;
    TRY(driver_check());
    REQUIRE(parameters->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            parameters->type != CU_GRAPH_NODE_TYPE_MEM_FREE);
    TRY(payload_read(parameters, &payload));
    order_lock();
    CUresult result = node_get(handle, &node);
    if (result == CUDA_SUCCESS && node->payload.type != payload.type)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        payload_exchange(&node->payload, &payload);
    payload_clear(&payload);
    order_unlock();
    user_objects_bury();
    return result;
}

ENTRY cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *parameters)
{
    REQUIRE(parameters != NULL);
    return node_change(node, parameters);
}
TWIN(cuGraphNodeSetParams, cuGraphNodeSetParams_v2);

ENTRY cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams *parameters)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    REQUIRE(parameters != NULL);
    TRY(cuGraphNodeGetType(node, &type));
    return node_show(node, type, parameters);
}

/* --- kernels ------------------------------------------------------------------------------- */

/* The first version has no library kernels; the others are the same memory. */
static CUgraphNodeParams kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&parameters.kernel, given, sizeof *given);
    return parameters;
}

static CUgraphNodeParams kernel_v2(const CUDA_KERNEL_NODE_PARAMS *given)
{
    CUgraphNodeParams parameters = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    _Static_assert(sizeof parameters.kernel == sizeof *given, "the same memory");
    memcpy(&parameters.kernel, given, sizeof *given);
    return parameters;
}

ENTRY cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v1(given);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v2(given);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_KERNEL, &parameters));
    memcpy(shown, &parameters.kernel, sizeof *shown);
    return CUDA_SUCCESS;
}

ENTRY cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_KERNEL, &parameters));
    memcpy(shown, &parameters.kernel, sizeof *shown);
    return CUDA_SUCCESS;
}

ENTRY cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v1(given);
    return node_change(node, &parameters);
}

ENTRY cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v2(given);
    return node_change(node, &parameters);
}

ENTRY cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v1(given);
    return exec_change(exec, node, &parameters);
}

ENTRY cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS *given)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = kernel_v2(given);
    return exec_change(exec, node, &parameters);
}

/* --- copies and memsets -------------------------------------------------------------------- */

static CUgraphNodeParams copy_of(const CUDA_MEMCPY3D *given, CUcontext context)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .memcpy = {.copyCtx = context, .copyParams = *given},
    };
}

static CUgraphNodeParams set_of(const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context)
{
    return (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {given->dst, given->pitch, given->value, given->elementSize, given->width,
                   given->height, context},
    };
}

ENTRY cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           size_t count, const CUDA_MEMCPY3D *given, CUcontext context)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = copy_of(given, context);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           size_t count, const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = set_of(given, context);
    return node_create(node, graph, dependencies, NULL, count, &parameters);
}

ENTRY cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEMCPY, &parameters));
    *shown = parameters.memcpy.copyParams;
    return CUDA_SUCCESS;
}

ENTRY cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *shown)
{
    CUgraphNodeParams parameters;
    REQUIRE(shown != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEMSET, &parameters));
    memcpy(shown, &parameters.memset, sizeof *shown);
    return CUDA_SUCCESS;
}

ENTRY cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *given)
{
    CUgraphNodeParams before;
    REQUIRE(given != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEMCPY, &before));
    CUgraphNodeParams parameters = copy_of(given, before.memcpy.copyCtx);
    return node_change(node, &parameters);
}

ENTRY cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *given)
{
    CUgraphNodeParams before;
    REQUIRE(given != NULL);
    TRY(node_show(node, CU_GRAPH_NODE_TYPE_MEMSET, &before));
    CUgraphNodeParams parameters = set_of(given, before.memset.ctx);
    return node_change(node, &parameters);
}

ENTRY cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *given,
                                     CUcontext context)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = copy_of(given, context);
    return exec_change(exec, node, &parameters);
}

ENTRY cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context)
{
    REQUIRE(given != NULL);
    CUgraphNodeParams parameters = set_of(given, context);
    return exec_change(exec, node, &parameters);
}

/* --- attributes of kernels ----------------------------------------------------------------- */

/* A kernel node and the lock. */
static CUresult kernel_lock(CUgraphNode handle, struct node **node)
{
    TRY(driver_check());
    order_lock();
    CUresult result = node_get(handle, node);
    if (result == CUDA_SUCCESS && (*node)->payload.type != CU_GRAPH_NODE_TYPE_KERNEL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        order_unlock();
    return result;
}

ENTRY cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                    CUkernelNodeAttrValue *value)
{
    struct node *node = NULL;
    REQUIRE(value != NULL);
    TRY(kernel_lock(handle, &node));
    const struct kernel_call *call = &node->payload.kernel;
    *value = (CUkernelNodeAttrValue){0};
    for (size_t i = 0; i < call->attribute_count; i++)
        if (call->attributes[i].id == attribute)
            *value = call->attributes[i].value;
    order_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                    const CUkernelNodeAttrValue *value)
{
    struct node *node = NULL;
    REQUIRE(value != NULL);
    const CUlaunchAttribute wanted = {.id = attribute, .value = *value};
    TRY(kernel_lock(handle, &node));
    struct kernel_call *call = &node->payload.kernel;
    CUresult result = launch_check_attributes(call->function, &call->shape, &wanted, 1);
    if (result == CUDA_SUCCESS)
        result = kernel_call_set_attribute(call, &wanted);
    order_unlock();
    return result;
}

ENTRY cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle)
{
    struct node *to = NULL;
    struct node *from = NULL;
    TRY(kernel_lock(to_handle, &to));
    CUresult result = node_get(from_handle, &from);
    if (result == CUDA_SUCCESS && from->payload.type != CU_GRAPH_NODE_TYPE_KERNEL)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < from->payload.kernel.attribute_count; i++)
        result =
            kernel_call_set_attribute(&to->payload.kernel, &from->payload.kernel.attributes[i]);
    order_unlock();
    return result;
}
