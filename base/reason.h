#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace rumbo {

// Why something failed or was refused. The same names and numbers as rumbo.v1.Reason in
// proto/rumbo/v1/errors.proto, where each is documented; a test in daemon/rpc keeps the two equal.
// Add a reason here and there, with the same number; never renumber.
#define RUMBO_REASONS(X)        \
  X(Unspecified, 0)             \
  X(InvalidArgument, 1)         \
  X(ModelNotFound, 2)           \
  X(ModelInvalid, 3)            \
  X(ModelExists, 4)             \
  X(FileNotFound, 5)            \
  X(FileNotReadable, 6)         \
  X(NotAFile, 7)                \
  X(UnsupportedArchitecture, 8) \
  X(ContextTooLarge, 9)         \
  X(PromptTooLong, 10)          \
  X(InvalidUtf8, 11)            \
  X(CapabilityMissing, 12)      \
  X(DoesNotFit, 13)             \
  X(ContractUnsatisfiable, 14)  \
  X(EngineNotInstalled, 15)     \
  X(EngineStartFailed, 16)      \
  X(EngineCrashed, 17)          \
  X(EngineHung, 18)             \
  X(EngineProtocol, 19)         \
  X(CrashLoop, 20)              \
  X(QueueFull, 21)              \
  X(DeadlineExceeded, 22)       \
  X(Cancelled, 23)              \
  X(DiskFull, 24)               \
  X(AddressInUse, 25)           \
  X(PermissionDenied, 26)       \
  X(Unauthenticated, 27)        \
  X(HostRefused, 28)            \
  X(OriginRefused, 29)          \
  X(NotImplemented, 30)         \
  X(Internal, 31)               \
  X(Draining, 32)               \
  X(InstanceNotFound, 33)       \
  X(ProfileNotFound, 34)        \
  X(ProbeFailed, 35)            \
  X(DeviceNotUsable, 36)        \
  X(DeviceLost, 37)             \
  X(BackendUnavailable, 38)     \
  X(FormatUnsupported, 39)      \
  X(SystemUnsupported, 40)      \
  X(SlowerThanChosen, 41)       \
  X(Unverified, 42)             \
  X(InstanceStopped, 43)        \
  X(DaemonUnreachable, 44)      \
  X(RateLimited, 45)            \
  X(NotAllowedByPolicy, 46)     \
  X(HashMismatch, 47)           \
  X(LeaseRevoked, 48)           \
  X(RequestTooLarge, 49)        \
  X(NeedsPack, 50)

enum class Reason : int {
#define RUMBO_X(name, number) k##name = number,
  RUMBO_REASONS(RUMBO_X)
#undef RUMBO_X
};

// "ModelNotFound" for kModelNotFound; "Unspecified" for a number outside the enum.
std::string_view ReasonName(Reason reason);

// "MODEL_NOT_FOUND" for kModelNotFound: the spelling of the wire, of JSON and of logs.
std::string_view ReasonCode(Reason reason);

// The inverse of ReasonCode; nullopt for a word that is no reason.
std::optional<Reason> ReasonFromCode(std::string_view code);

}  // namespace rumbo
