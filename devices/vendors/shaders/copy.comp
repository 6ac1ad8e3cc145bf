#version 450
// Copies `count` vec4: what the memory of the device sustains when every lane streams.
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer Source { vec4 source[]; };
layout(std430, binding = 1) writeonly buffer Target { vec4 target[]; };
layout(push_constant) uniform Parameters { uint count; };
void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) target[i] = source[i];
}
