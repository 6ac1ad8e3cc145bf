#version 450
// C = A * B of n x n floats, n a multiple of 64: tiles of 64 x 64 in shared memory, 4 x 4 results per lane.
// Plain, so a lower bound of what tuned kernels reach.
layout(local_size_x = 16, local_size_y = 16) in;
layout(std430, binding = 0) readonly buffer A { float a[]; };
layout(std430, binding = 1) readonly buffer B { float b[]; };
layout(std430, binding = 2) writeonly buffer C { float c[]; };
layout(push_constant) uniform Parameters { uint n; };
const uint kTile = 64, kStep = 16;
shared float tile_a[kTile][kStep];
shared float tile_b[kStep][kTile];
void main() {
  const uint lx = gl_LocalInvocationID.x, ly = gl_LocalInvocationID.y, lane = ly * 16 + lx;
  const uint row = gl_WorkGroupID.y * kTile, column = gl_WorkGroupID.x * kTile;
  float sum[4][4];
  for (uint i = 0; i < 4; ++i) for (uint j = 0; j < 4; ++j) sum[i][j] = 0.0;
  for (uint k = 0; k < n; k += kStep) {
    for (uint i = lane; i < kTile * kStep; i += 256) {
      tile_a[i / kStep][i % kStep] = a[(row + i / kStep) * n + k + i % kStep];
      tile_b[i / kTile][i % kTile] = b[(k + i / kTile) * n + column + i % kTile];
    }
    barrier();
    for (uint s = 0; s < kStep; ++s) {
      for (uint i = 0; i < 4; ++i) {
        const float left = tile_a[ly * 4 + i][s];
        for (uint j = 0; j < 4; ++j) sum[i][j] += left * tile_b[s][lx * 4 + j];
      }
    }
    barrier();
  }
  for (uint i = 0; i < 4; ++i) for (uint j = 0; j < 4; ++j) c[(row + ly * 4 + i) * n + column + lx * 4 + j] = sum[i][j];
}
