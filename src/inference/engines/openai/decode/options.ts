import type { ReadPrompt } from '../../../../generation/event.ts';
import type { ReasoningForm } from '../../../../generation/request.ts';
import type { UsageTally } from '../../usage-tally.ts';
import type { Bound, ReportUnchecked } from '../answer-guard.ts';
import type { ChunkShapes } from '../chunk-template.ts';
import type { EchoedBeginning } from '../echoed-beginning.ts';
import type { ServedModel } from '../served-model.ts';

export interface DecoderOptions {
  /** Hears what each parsed piece calls its model. */
  readonly served?: ServedModel | undefined;
  /** Our own unique id: the root of tool call ids that the backend omits. */
  readonly requestId: string;
  readonly choices: number;
  readonly choicesPerPrompt: number;
  readonly maxTokens: number;
  readonly reasoningForm: ReasoningForm;
  /** Whether think tags at the beginning of the text hold reasoning: the server may have left them in. */
  readonly splitsThinking: boolean;
  /** Number of alternatives requested for each chosen token; `undefined`: no logprobs. */
  readonly logprobs: number | undefined;
  /** `parallel_tool_calls: false`: a choice ends with its first call, even if the server would continue. */
  readonly takesOneCall: boolean;
  /** What a usage without a choice counts: the request, or (llama-server) the choice that has just ended. */
  readonly closingUsage: 'total' | 'per-choice';
  readonly tally: UsageTally;
  /** For text completions; absent for chat. */
  readonly completion?: CompletionReading;
  /** Shared by the server's other streams; absent: there are none. */
  readonly shapes?: ChunkShapes;
  /** The words that an answer continues, if the server repeats them. */
  readonly echo?: EchoedBeginning | undefined;
  /** What the answer is checked against; absent: nothing. */
  readonly bound?: Bound | undefined;
  /** Stop sequences that the server leaves at the end of the text; absent: it cuts them off. */
  readonly stops?: readonly string[] | undefined;
  /** An answer that is a whole call may have no finish reason. */
  readonly endsCallsWithoutReason?: boolean;
  readonly onUnchecked?: ReportUnchecked;
  /** Names of the request's tools: a name can come in pieces. */
  readonly toolNames?: readonly string[];
  /** Hears a finish reason that is not known; it counts as `stop`. */
  readonly onUnknownFinish?: (word: string) => void;
}

export interface CompletionReading {
  readonly prompts: readonly string[] | readonly (readonly number[])[];
  /** The first text of each choice begins with its prompt. */
  readonly isEchoed: boolean;
  /** What is reported of the prompt without the server. */
  ownEcho(prompt: number): ReadPrompt | undefined;
  /** Ids must be returned, or the answer is a failure. */
  readonly returnsIds: boolean;
  /** The client requested logprobs; otherwise they are only for us. */
  readonly hasLogprobs: boolean;
}
