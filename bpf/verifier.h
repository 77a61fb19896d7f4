/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What a program must write so that every supported kernel's verifier sees its bounds.
 *
 * The compiler removes a check that it can prove, and merges a mask with the shift before it. The verifier knows less:
 * that of Linux 6.1 has no bounds for a 32-bit product, difference, `or` or `xor`, and a check of one register says nothing of
 * its copy. OPAQUE(value), directly before a check or mask, hides from the compiler where the value came from, so that the
 * check stays, on the register that is used next.
 */
#ifndef UDPATH_VERIFIER_H
#define UDPATH_VERIFIER_H

#define OPAQUE(value) asm volatile("" : "+r"(value))

#endif
