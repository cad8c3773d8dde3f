#pragma once

// What frit calls of NCCL 2.13 and all later ones of version 2, whose header need not be there when frit is built.

struct CUstream_st;  // what cudaStream_t points to

extern "C" {

struct ncclComm;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int { ncclSuccess = 0 };
enum ncclDataType_t : int { ncclUint8 = 1, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
enum ncclRedOp_t : int { ncclAvg = 4 };

ncclResult_t ncclGetVersion(int* version);  // 10000 * major + 100 * minor + patch
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm** communicator, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm* communicator);
ncclResult_t ncclCommAbort(ncclComm* communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm* communicator, ncclResult_t* error);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* tensor, void* result, decltype(sizeof(0)) elements, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm* communicator, CUstream_st* stream);
ncclResult_t ncclReduce(const void* tensor, void* result, decltype(sizeof(0)) elements, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm* communicator, CUstream_st* stream);
ncclResult_t ncclReduceScatter(const void* tensor, void* part, decltype(sizeof(0)) elements_of_part, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm* communicator, CUstream_st* stream);
ncclResult_t ncclAllGather(const void* part, void* result, decltype(sizeof(0)) elements_of_part, ncclDataType_t type,
                           ncclComm* communicator, CUstream_st* stream);
ncclResult_t ncclBroadcast(const void* tensor, void* result, decltype(sizeof(0)) elements, ncclDataType_t type, int root,
                           ncclComm* communicator, CUstream_st* stream);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm* communicator);  // of this process, in words; null stands for any communicator

}  // extern "C"
