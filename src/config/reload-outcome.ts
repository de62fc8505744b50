import type { BackendLook } from './backend-look.ts';
import type { Problem } from './problem.ts';

/** The outcome of a request to read the configuration again. A refused file changes nothing at all (reliability S8). */
export type ReloadOutcome =
  | {
      readonly kind: 'reloaded';
      readonly version: number;
      readonly changes: readonly string[];
      /** The states of its backends' servers. */
      readonly backends: readonly BackendLook[];
    }
  /** The file equals the configuration in force. */
  | { readonly kind: 'unchanged'; readonly version: number }
  | { readonly kind: 'refused'; readonly version: number; readonly problems: readonly Problem[] };
