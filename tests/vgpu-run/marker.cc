// Stands for libvgpu.so where a test only wants to see that it was preloaded.
extern "C" int vgpu_marker;
int vgpu_marker = 1;
