/* Launches: how long they take, and which are refused. */
#include "bench.h"

static CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared)
{
    uint64_t pointer = 0;
    uint32_t number = 0;
    void *parameters[] = {&pointer, &number};
    return cuLaunchKernel(function, x, y, z, bx, by, bz, shared, NULL, parameters, NULL);
}

/* How long the GPU is busy with what was launched into the idle default stream. */
static float measured_ms(CUfunction function, unsigned blocks, unsigned threads)
{
    const CUevent start = new_event();
    const CUevent end = new_event();
    OK(cuEventRecord(start, NULL));
    OK(launch(function, blocks, 1, 1, threads, 1, 1, 0));
    OK(cuEventRecord(end, NULL));
    pass_us(10000000);
    return elapsed_ms(start, end);
}

CASE(test_kernels_take_what_they_are_asked_to)
{
    uint64_t duration_ns = 123456;
    new_context();
    const CUevent start = new_event();
    const CUevent end = new_event();
    const CUfunction spins = test_kernel("aliquot_spin");
    size_t bytes = sizeof duration_ns;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &duration_ns, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    OK(cuEventRecord(start, NULL));
    OK(cuLaunchKernel(spins, 9, 9, 9, 64, 1, 1, 0, NULL, NULL, extra));
    OK(cuEventRecord(end, NULL));
    pass_us(1000);
    CHECK(elapsed_ms(start, end) == 0.123456f);
    OK(cuEventRecord(start, NULL));
    OK(cuLaunchKernel(test_kernel("aliquot_spin_us_100"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuEventRecord(end, NULL));
    pass_us(1000);
    CHECK(elapsed_ms(start, end) == 0.1f);
    bytes = 4;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spins, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
}

CASE(other_kernels_take_3_us_and_2_us_for_each_wave)
{
    new_context();
    const CUfunction other = test_kernel("other");
    CHECK(measured_ms(other, 1, 32) == 0.005f);
    CHECK(measured_ms(other, 132 * 8, 256) == 0.005f); /* all of an H100 at once */
    CHECK(measured_ms(other, 132 * 8 + 1, 256) == 0.007f);
    CHECK(measured_ms(other, 132, 1024) == 0.011f); /* four times 256 threads */
}

CASE(impossible_shapes_are_refused)
{
    new_context();
    const CUfunction f = test_kernel("other");
    const CUresult invalid = CUDA_ERROR_INVALID_VALUE;
    FAILS(invalid, launch(f, 0, 1, 1, 1, 1, 1, 0));
    FAILS(invalid, launch(f, 1, 65536, 1, 1, 1, 1, 0));
    FAILS(invalid, launch(f, 0x80000000, 1, 1, 1, 1, 1, 0));
    FAILS(invalid, launch(f, 1, 1, 65536, 1, 1, 1, 0));
    FAILS(invalid, launch(f, 1, 1, 1, 0, 1, 1, 0));
    FAILS(invalid, launch(f, 1, 1, 1, 1025, 1, 1, 0));
    FAILS(invalid, launch(f, 1, 1, 1, 1, 1, 65, 0));
    FAILS(invalid, launch(f, 1, 1, 1, 32, 32, 2, 0));
    FAILS(invalid, launch(f, 1, 1, 1, 1, 1, 1, (48 << 10) + 1));
    OK(launch(f, 0x7fffffff, 1, 1, 1, 1, 1, 0));
    OK(launch(f, 1, 65535, 65535, 4, 4, 64, 48 << 10));
}

CASE(arguments_must_be_there)
{
    uint64_t duration = 1;
    void *parameters[] = {&duration};
    void *extra[] = {CU_LAUNCH_PARAM_END};
    void *nonsense[] = {(void *)77, NULL, CU_LAUNCH_PARAM_END};
    new_context();
    const CUfunction f = test_kernel("aliquot_spin");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, nonsense));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
}

CASE(handles_of_launches_are_checked)
{
    CUcontext other = NULL;
    uint64_t duration = 1;
    void *parameters[] = {&duration};
    new_context();
    const CUfunction f = test_kernel("aliquot_spin");
    const CUstream stream = new_stream(0);
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)(uintptr_t)0x1230, 1, 1, 1, 1, 1, 1,
                                                    0, NULL, parameters, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, (CUstream)(uintptr_t)0x99, parameters, NULL));
    OK(cuCtxCreate_v2(&other, 0, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuCtxPopCurrent_v2(&other));
    OK(cuCtxPopCurrent_v2(&other));
    FAILS(CUDA_ERROR_INVALID_CONTEXT,
          cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

CASE(cooperative_launches_must_fit_at_once)
{
    uint64_t pointer = 0;
    uint32_t number = 0;
    void *parameters[] = {&pointer, &number};
    new_context();
    const CUfunction f = test_kernel("other");
    OK(cuLaunchCooperativeKernel(f, 132 * 2, 1, 1, 1024, 1, 1, 0, NULL, parameters));
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cuLaunchCooperativeKernel(f, 132 * 2 + 1, 1, 1, 1024, 1, 1, 0, NULL, parameters));
    OK(launch(f, 132 * 2 + 1, 1, 1, 1024, 1, 1, 0));
}

CASE(configured_launches_take_attributes)
{
    uint64_t duration = 1000000;
    void *parameters[] = {&duration};
    new_context();
    const CUfunction f = test_kernel("aliquot_spin");
    const CUevent event = new_event();
    CUlaunchAttribute attributes[2] = {
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {2, 1, 1}}},
        {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
         .value = {.launchCompletionEvent = {event, 0}}},
    };
    CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 0, NULL, attributes, 2};
    OK(cuLaunchKernelEx(&config, f, parameters, NULL));
    CHECK(!has_happened(event));
    pass_us(1000);
    CHECK(has_happened(event));
    config.gridDimX = 3;
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx(&config, f, parameters, NULL));
    attributes[0].id = (CUlaunchAttributeID)99;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, f, parameters, NULL));
    config.attrs = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(&config, f, parameters, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx(NULL, f, parameters, NULL));
    config.numAttrs = 0;
    OK(cuLaunchKernelEx_ptsz(&config, f, parameters, NULL));
}

CASE(several_devices_launch_together)
{
    CUcontext contexts[2];
    CUDA_LAUNCH_PARAMS list[2];
    uint64_t duration = 1000;
    void *parameters[] = {&duration};
    OK(cuInit(0));
    for (int i = 0; i < 2; i++) {
        OK(cuCtxCreate_v2(&contexts[i], 0, i));
        list[i] = (CUDA_LAUNCH_PARAMS){
            test_kernel("aliquot_spin"), 1, 1, 1, 32, 1, 1, 0, new_stream(0), parameters};
    }
    OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    list[1].gridDimX = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    list[1] = list[0];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    list[0].hStream = NULL;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(list, 1, 0));
}

CASE(launching_as_in_the_first_versions)
{
    uint64_t duration = 3000000;
    new_context();
    const CUfunction f = test_kernel("aliquot_spin");
    const CUstream stream = new_stream(0);
    OK(cuFuncSetBlockShape(f, 32, 1, 1));
    OK(cuFuncSetSharedSize(f, 1024));
    OK(cuParamSetSize(f, 8));
    OK(cuParamSetv(f, 0, &duration, 8));
    OK(cuLaunchGridAsync(f, 2, 2, stream));
    pass_us(2999);
    CHECK(!is_done(stream));
    pass_us(1);
    CHECK(is_done(stream));
    OK(cuLaunchGrid(f, 1, 1));
    OK(cuLaunch(f));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid(f, 0, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetSize(f, 1 << 20));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetv(f, 4090, &duration, 8));
    OK(cuParamSetSize(f, 4));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunch(f));
}

CASE(functions_are_loaded_when_they_are_used)
{
    CUfunctionLoadingState state;
    CUmoduleLoadingMode mode;
    new_context();
    const CUfunction f = test_kernel("aliquot_spin_us_100");
    OK(cuModuleGetLoadingMode(&mode));
    CHECK_EQUAL(mode, CU_MODULE_LAZY_LOADING);
    OK(cuFuncIsLoaded(&state, f));
    CHECK_EQUAL(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuFuncIsLoaded(&state, f));
    CHECK_EQUAL(state, CU_FUNCTION_LOADING_STATE_LOADED);
    const CUfunction g = test_kernel("other");
    OK(cuFuncLoad(g));
    OK(cuFuncIsLoaded(&state, g));
    CHECK_EQUAL(state, CU_FUNCTION_LOADING_STATE_LOADED);
}
