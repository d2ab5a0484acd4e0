#include "front/counted.h"

HAK_DATA_HERE _Thread_local struct counted counted __attribute__((tls_model("initial-exec")));
