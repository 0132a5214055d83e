/*
 * NVML's calls, as far as they are implemented or hooked.
 */
#pragma once

#include "nvml_health.h"
#include "nvml_types.h"

/* --- the session and the system -------------------------------------------------------------- */

nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInitWithFlags(unsigned int);
nvmlReturn_t nvmlShutdown(void);
const char *nvmlErrorString(nvmlReturn_t);
nvmlReturn_t nvmlSystemGetDriverVersion(char *, unsigned int);
nvmlReturn_t nvmlSystemGetNVMLVersion(char *, unsigned int);
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *);
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *);
nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *, unsigned int);
nvmlReturn_t nvmlSystemGetProcessName(unsigned int, char *, unsigned int);
nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *, nvmlHwbcEntry_t *);
nvmlReturn_t nvmlUnitGetCount(unsigned int *);
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *);
nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *);
nvmlReturn_t nvmlSystemGetConfComputeCapabilities(nvmlConfComputeSystemCaps_t *);
nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned int *);

/* --- which devices there are ----------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetCount(unsigned int *);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *);
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);

/* --- what a device is ------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t, nvmlBrandType_t *);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t, nvmlDevice_t, int *);
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t, nvmlDeviceArchitecture_t *);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, int *, int *);
nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t, nvmlInforomObject_t, char *, unsigned int);
nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t);
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t, char *);
nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t, nvmlBusType_t *);
nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t, nvmlPowerSource_t *);

/* --- modes ----------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t, nvmlComputeMode_t *);
nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t, nvmlGpuVirtualizationMode_t *);
nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t, nvmlRestrictedAPI_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t, unsigned int, nvmlAccountingStats_t *);
nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t, nvmlConfComputeMemSizeInfo_t *);
nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t, nvmlGpmSupport_t *);

/* --- PCIe ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t, nvmlPciInfoExt_t *);
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t, nvmlPcieUtilCounter_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t, unsigned int *);

/* --- memory and ECC -------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t, nvmlBAR1Memory_t *);
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t, nvmlEnableState_t *, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
                                         unsigned long long *);
nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t,
                                            nvmlEccCounterType_t, nvmlEccErrorCounts_t *);
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t, nvmlMemoryErrorType_t,
                                             nvmlEccCounterType_t, nvmlMemoryLocation_t,
                                             unsigned long long *);
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t, nvmlPageRetirementCause_t, unsigned int *,
                                       unsigned long long *);
nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t, nvmlPageRetirementCause_t, unsigned int *,
                                          unsigned long long *, unsigned long long *);
nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t, unsigned int *, unsigned int *, unsigned int *,
                                       unsigned int *);
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t, nvmlRowRemapperHistogramValues_t *);

/* --- processes ------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned int *,
                                                  nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *,
                                                     nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int *,
                                                     nvmlProcessInfo_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned int *,
                                                   nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned int *,
                                                      nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned int *,
                                                      nvmlProcessInfo_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned int *,
                                                     nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned int *,
                                                        nvmlProcessInfo_v2_t *);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned int *,
                                                        nvmlProcessInfo_t *);
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t, nvmlProcessDetailList_t *);

/* --- utilisation ----------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t *);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t, nvmlProcessUtilizationSample_t *,
                                             unsigned int *, unsigned long long);
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *);
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t, nvmlSamplingType_t, unsigned long long,
                                  nvmlValueType_t *, unsigned int *, nvmlSample_t *);
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t, nvmlEncoderType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t, unsigned int *, unsigned int *,
                                       unsigned int *);
nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t, unsigned int *, nvmlEncoderSessionInfo_t *);
nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t, nvmlFBCStats_t *);
nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t, unsigned int *, nvmlFBCSessionInfo_t *);

/* --- clocks ---------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t, nvmlClockType_t, nvmlClockId_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t, nvmlClockType_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t, unsigned int, unsigned int *,
                                                  unsigned int *);
nvmlReturn_t nvmlDeviceGetAdaptiveClockInfoStatus(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t, nvmlPstates_t *);
nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t, nvmlPstates_t *);
nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t, nvmlPstates_t *, unsigned int);
nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t, nvmlClockType_t, nvmlPstates_t,
                                              unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t, nvmlGpuDynamicPstatesInfo_t *);
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t, nvmlPerfPolicyType_t,
                                          nvmlViolationTime_t *);

/* --- heat and power -------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t, nvmlTemperature_t *);
nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t, nvmlTemperatureThresholds_t,
                                               unsigned int *);
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t, nvmlMarginTemperature_t *);
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t, nvmlFanSpeedInfo_t *);
nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t, unsigned int *, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t, unsigned int *,
                                                          unsigned int *);
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t, unsigned long long *);

/* --- topology -------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t, nvmlDevice_t,
                                                 nvmlGpuTopologyLevel_t *);
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t, nvmlGpuTopologyLevel_t, unsigned int *,
                                              nvmlDevice_t *);
nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int, unsigned int *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t,
                                    nvmlGpuP2PStatus_t *);
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t, unsigned int, unsigned long *);
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t, unsigned int, unsigned long *,
                                                 nvmlAffinityScope_t);
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t, unsigned int, unsigned long *,
                                         nvmlAffinityScope_t);
nvmlReturn_t nvmlDeviceSetCpuAffinity(nvmlDevice_t);
nvmlReturn_t nvmlDeviceClearCpuAffinity(nvmlDevice_t);

/* --- NVLink ---------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned int, nvmlEnableState_t *);
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t, unsigned int, unsigned int *);
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t, unsigned int, nvmlNvLinkCapability_t,
                                           unsigned int *);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t, unsigned int, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t, unsigned int, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned int,
                                                 nvmlIntNvLinkDeviceType_t *);
nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t, unsigned int, nvmlNvLinkErrorCounter_t,
                                             unsigned long long *);
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t, nvmlGpuFabricInfo_t *);
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, nvmlGpuFabricInfoV_t *);

/* --- events and fields ----------------------------------------------------------------------- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *);
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t);
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t, nvmlEventData_t *, unsigned int);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t *, unsigned int);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t);
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t, unsigned long long *);
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
nvmlReturn_t nvmlDeviceClearFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
