import type { ReadPrompt } from '../../../../generation/event.ts';
import type { ReasoningForm } from '../../../../generation/request.ts';
import type { UsageTally } from '../../usage-tally.ts';
import type { Bound, ReportUnchecked } from '../answer-guard.ts';
import type { ChunkShapes } from '../chunk-template.ts';
import type { EchoedBeginning } from '../echoed-beginning.ts';
import type { ServedModel } from '../served-model.ts';

export interface DecoderOptions {
  /** Receives the model name in each parsed piece. */
  readonly served?: ServedModel | undefined;
  /** Unique id assigned by the service: the root of tool call ids that the backend omits. */
  readonly requestId: string;
  readonly choices: number;
  readonly choicesPerPrompt: number;
  readonly maxTokens: number;
  readonly reasoningForm: ReasoningForm;
  /** Whether think tags at the beginning of the text are treated as reasoning: the server may have left them in. */
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
  /** Shared by the server's other streams; absent if there are none. */
  readonly shapes?: ChunkShapes;
  /** The words that an answer continues, if the server repeats them. */
  readonly echo?: EchoedBeginning | undefined;
  /** The bound that the answer is checked against; absent if there is none. */
  readonly bound?: Bound | undefined;
  /** Stop sequences that the server leaves at the end of the text; absent if it removes them. */
  readonly stops?: readonly string[] | undefined;
  /** Whether an answer that is a whole call may have no finish reason. */
  readonly endsCallsWithoutReason?: boolean;
  readonly onUnchecked?: ReportUnchecked;
  /** Names of the request's tools: a name can arrive in pieces. */
  readonly toolNames?: readonly string[];
  /** Receives an unknown finish reason, which counts as `stop`. */
  readonly onUnknownFinish?: (word: string) => void;
}

export interface CompletionReading {
  readonly prompts: readonly string[] | readonly (readonly number[])[];
  /** Whether the first text of each choice begins with its prompt. */
  readonly isEchoed: boolean;
  /** Returns what is reported about the prompt without the server. */
  ownEcho(prompt: number): ReadPrompt | undefined;
  /** Whether ids must be returned; an answer without them is a failure. */
  readonly returnsIds: boolean;
  /** Whether the client requested logprobs; otherwise they are only for internal use. */
  readonly hasLogprobs: boolean;
}
