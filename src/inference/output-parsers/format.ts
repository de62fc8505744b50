import type { Calls } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import type { Reading, Source } from './source.ts';

/** One way of writing calls. */
export interface CallFormat {
  /** Reads a whole answer: text, and calls between it. */
  readonly read: (source: Source, sink: EventSink, calls: Calls) => Reading;
  readonly spelling: CallSpelling;
  /** Literals that some vocabularies have as control tokens, which the parser must see although clients never do. */
  readonly specials: readonly string[];
  /** Templates of this format take ids of nine letters and digits only. */
  readonly hasShortIds: boolean;
}

/** How a call is written, for grammars that make a model write it. */
export interface CallSpelling {
  /** Before the first call and after the last. */
  readonly open: string;
  readonly close: string;
  readonly beforeName: string;
  /** `json`: with quotes and escapes. */
  readonly name: 'json' | 'bare';
  readonly beforeArguments: string;
  readonly afterArguments: string;
  /** Between two calls; `undefined`: one call is all that an answer holds. */
  readonly between: string | undefined;
  /**
   * The mark that a call begins, in text that may also contain none: from there on a model that was only offered the tools can be
   * constrained to them. `undefined`: what begins a call may also begin a text.
   */
  readonly trigger: string | undefined;
}
