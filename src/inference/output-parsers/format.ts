import type { Calls } from './calls.ts';
import type { EventSink } from './parsed-event.ts';
import type { Reading, Source } from './source.ts';

/** One format of calls. */
export interface CallFormat {
  /** Reads a whole answer: text, with calls in between. */
  readonly read: (source: Source, sink: EventSink, calls: Calls) => Reading;
  readonly spelling: CallSpelling;
  /** Literals that are control tokens in some vocabularies, and which the parser must see although clients never do. */
  readonly specials: readonly string[];
  /** Whether templates of this format only accept ids of nine letters and digits. */
  readonly hasShortIds: boolean;
}

/** The spelling of a call, for grammars that make a model write it. */
export interface CallSpelling {
  /** The text before the first call and after the last. */
  readonly open: string;
  readonly close: string;
  readonly beforeName: string;
  /** `json`: with quotes and escapes. */
  readonly name: 'json' | 'bare';
  readonly beforeArguments: string;
  readonly afterArguments: string;
  /** The text between two calls; `undefined`: an answer holds only one call. */
  readonly between: string | undefined;
  /**
   * The mark that begins a call within free text: from there on a model that was merely offered the tools can be constrained to them.
   * `undefined`: what begins a call may also begin a text.
   */
  readonly trigger: string | undefined;
}
