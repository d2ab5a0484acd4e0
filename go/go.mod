module hakmem.internal/hakmem

go 1.19
