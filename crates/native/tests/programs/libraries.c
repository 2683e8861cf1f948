/* Libraries that are loaded and unloaded again and again, often at the same addresses. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    const char *names[] = {"libm.so.6", "libresolv.so.2", "libutil.so.1", "libm.so.6"};
    double sum = 0;
    for (int i = 0; i < 100; i++) {
        void *library = dlopen(names[i % 4], RTLD_NOW);
        if (!library)
            return 1;
        double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
        if (cosine)
            sum += cosine(i);
        dlclose(library);
    }
    printf("%.9f\n", sum);
    return 0;
}
