#pragma once

#include <string>

#include "absl/status/status.h"

// Where Rumbo keeps things: one rule for the daemon and its clients. Every function reads the environment
// anew; call them before starting threads that change it.
namespace rumbo {

// The daemon's socket: $RUMBO_SOCKET; else $XDG_RUNTIME_DIR/rumbo/rumbo.sock where that variable names a
// folder that belongs to the caller; else /tmp/rumbo-<uid>/rumbo.sock, whose folder has mode 0700.
std::string DefaultSocketPath();

// Where a client looks for a daemon: DefaultSocketPath(); but where nothing stands there, RUMBO_SOCKET does
// not say otherwise and the machine has a system service, that one's socket, /run/rumbo/rumbo.sock.
std::string ClientSocketPath();

// $RUMBO_STATE_DIR; else $XDG_DATA_HOME/rumbo; else ~/.local/share/rumbo. Models, database, logs.
std::string DefaultStateDir();

// $RUMBO_CACHE_DIR; else $XDG_CACHE_HOME/rumbo; else ~/.cache/rumbo.
std::string DefaultCacheDir();

// $RUMBO_CONFIG; else $XDG_CONFIG_HOME/rumbo/config.yaml; else ~/.config/rumbo/config.yaml.
std::string DefaultConfigFile();

// `path` against the working folder, without "." and "..". "" stays "".
std::string AbsolutePath(const std::string& path);

// Creates `path` with mode 0700, or checks that what is there is a folder of the caller that nobody else
// may write to: in a shared /tmp another user may have made it first.
absl::Status MakePrivateDir(const std::string& path);

}  // namespace rumbo
