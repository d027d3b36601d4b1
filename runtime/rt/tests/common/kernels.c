/* The kernels of the hand-made model (see mod.rs) as position-independent code without relocations, constants or calls. */
#include <stdint.h>

enum { VOCAB = 7, PAGE_FLOATS = 32 };

struct ctx {
    const int32_t *tokens, *positions, *seqs, *out_rows;
    const uint32_t *tables;
    uint64_t stride, n_tokens, n_rows, n_seqs;
    const void *uk;
};
typedef uint64_t u64;
#define KERNEL(name) void name(void **ops, const struct ctx *ctx, u64 m, u64 lo, u64 hi, void *scratch)
#define CELL(pool, i, p) \
    ((float *)(pool))[(u64)ctx->tables[(u64)ctx->seqs[i] * ctx->stride + (u64)(p) / 16] * PAGE_FLOATS + (u64)(p) % 16]

KERNEL(embed)
{
    float *x = ops[0];
    for (u64 i = lo; i < hi; i++)
        x[i] = (float)ctx->tokens[i];
}

KERNEL(append)
{
    const float *x = ops[0];
    for (u64 item = lo; item < hi; item++)
        CELL(item % 2 ? ops[2] : ops[1], item / 2, ctx->positions[item / 2]) = x[item / 2];
}

KERNEL(attend)
{
    float *y = ops[1];
    for (u64 i = lo; i < hi; i++) {
        float sum = (float)0;
        for (int32_t q = 0; q <= ctx->positions[i]; q++)
            sum += (float)(q + 1) * CELL(ops[0], i, q);
        y[i] = sum;
    }
}

#define HEAD(name, regime) \
    KERNEL(name) \
    { \
        const float *sums = ops[0], *weights = ops[1]; \
        float *logits = ops[2]; \
        for (u64 r = 0; r < m; r++) \
            for (u64 v = lo; v < hi; v++) { \
                volatile int32_t tag = regime; /* else its float would be a constant in another section */ \
                logits[r * VOCAB + v] = v == VOCAB - 1 ? (float)tag : sums[ctx->out_rows[r]] * weights[v]; \
            } \
    }

HEAD(head_few, 1)
HEAD(head_many, 2)
