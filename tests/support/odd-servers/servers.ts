import type { FlavorName } from '../../../src/generation/flavor-names.ts';
import type { KnownHabits } from './habits.ts';

/** A kind of server, and what of the habits it is known to have. */
export interface OddServer {
  readonly name: string;
  readonly flavor: FlavorName;
  /** Absent: any. */
  readonly habits?: KnownHabits;
  /** The model's card says that it reasons. */
  readonly reasons: boolean;
  /** It continues texts. */
  readonly completes: boolean;
  readonly choicesMax: 1 | 2;
  /** As in the flavor. */
  readonly closingUsage: 'total' | 'per-choice';
  readonly endsCallsWithoutReason: boolean;
}

const any: OddServer = {
  name: 'any',
  flavor: 'openai',
  reasons: true,
  completes: true,
  choicesMax: 2,
  closingUsage: 'total',
  endsCallsWithoutReason: false,
};

type Known = Pick<OddServer, 'name'> & Partial<Omit<OddServer, 'name' | 'habits'>> & { readonly habits: KnownHabits };

/** Which deviations the servers of each kind really have, and where that is reported. */
const known: readonly Known[] = [
  {
    // tests/fixtures/upstream/openai.
    name: 'OpenAI',
    habits: { nulls: ['all'], content: ['text', 'refusal'], deltas: ['words'], opens: ['with usage of null'] },
  },
  {
    // autogen#6465 (a chunk without a delta at the end), mentat#429 (a first chunk without choices).
    name: 'Azure',
    habits: { opens: ['with results of a filter'], trails: ['yes'], nulls: ['all'], envelope: ['odd'] },
  },
  {
    // tests/fixtures/upstream/vllm*; vllm#27755 (`reasoning`), vllm#28806 (calls without arguments), sglang and poolsideai/pool#9 (ids).
    name: 'vLLM',
    flavor: 'vllm',
    habits: {
      usageAt: ['each and end', 'end'],
      usageNames: ['plain', 'null details', 'openai'],
      reasoning: ['reasoning_content', 'reasoning', 'both names'],
      calls: ['plain', 'odd'],
      talks: ['yes'],
      halves: ['cut'],
      json: ['tight', 'ascii'],
    },
  },
  {
    // tests/fixtures/upstream/sglang; sglang#3912 (an empty text as finish).
    name: 'SGLang',
    flavor: 'sglang',
    habits: {
      usageAt: ['each and end', 'end'],
      usageNames: ['reasoning_tokens', 'plain'],
      unfinished: ['null', 'empty'],
      calls: ['plain', 'odd'],
      nulls: ['all'],
      empties: ['nulls'],
    },
  },
  {
    // tests/fixtures/upstream/llama-server; its usage is behind each choice, and was in `timings` alone.
    name: 'llama-server',
    flavor: 'llama-server',
    closingUsage: 'per-choice',
    habits: {
      usageAt: ['after each choice', 'timings'],
      usageNames: ['openai', 'plain'],
      empties: ['nulls'],
      json: ['tight'],
    },
  },
  {
    // ollama#15457 (index 0 for all calls), ollama#7881 (no index); `reasoning` as in openai/openai.go.
    name: 'Ollama',
    flavor: 'ollama',
    completes: false,
    choicesMax: 1,
    habits: {
      reasoning: ['reasoning'],
      role: ['in each'],
      calls: ['odd'],
      usageNames: ['plain'],
      finishWord: ['plain', 'odd'],
      arguments: ['text'],
    },
  },
  {
    // lmstudio-bug-tracker#1569 (tags in the text), #445 (no role with calls), #649.
    name: 'LM Studio',
    flavor: 'lm-studio',
    choicesMax: 1,
    habits: {
      reasoning: ['reasoning_content', 'reasoning', 'tags', 'tags in lines'],
      role: ['none', 'with the first'],
      usageNames: ['plain', 'openai'],
      finishWord: ['odd'],
      empties: ['objects'],
    },
  },
  {
    // text-generation-inference#2221 (no `[DONE]`); calls without a finish and `eos_token` as in router/src/chat.rs.
    name: 'text-generation-inference',
    flavor: 'tgi',
    completes: false,
    choicesMax: 1,
    endsCallsWithoutReason: true,
    habits: {
      role: ['in each'],
      finishAt: ['last', 'none for calls'],
      finishWord: ['odd'],
      usageNames: ['plain'],
      done: ['yes', 'no'],
      colon: ['data:'],
    },
  },
  {
    // Its documentation: cached tokens as hits and misses, `insufficient_system_resource`; `reasoning_content` is its name.
    name: 'DeepSeek',
    habits: { usageNames: ['hits'], usageAt: ['finish', 'end'], nulls: ['all'], comments: ['yes'] },
  },
  {
    // earendil-works/pi#2017 (usage in the choice), vercel/ai#12352 (cached tokens at the top).
    name: 'Moonshot',
    habits: { usageAt: ['choice'], usageNames: ['cached_tokens'] },
  },
  {
    // n8n-io/n8n#37352 (parts), inspect_ai#5143 (`model_length`).
    name: 'Mistral',
    habits: {
      content: ['text', 'parts'],
      reasoning: ['parts'],
      finishWord: ['odd'],
      finishAt: ['last'],
      usageAt: ['finish'],
    },
  },
  {
    // vercel/ai#12425, inspect_ai#5528 (reasoning beside the completion).
    name: 'xAI',
    habits: { reasoningBeside: ['named'], usageAt: ['each', 'end'], usageNames: ['openai'] },
  },
  {
    // ogx#5122 (usage so far in each chunk); thoughts only in the total, words of its own API; vercel/ai#12425.
    name: 'Gemini',
    habits: {
      reasoningBeside: ['in the total alone'],
      usageAt: ['each', 'end'],
      usageNames: ['plain'],
      finishWord: ['odd'],
      role: ['in each'],
      deltas: ['whole'],
      calls: ['plain', 'odd'],
    },
  },
  {
    // Its documentation of `x_groq`.
    name: 'Groq',
    habits: { usageAt: ['x_groq'], usageNames: ['plain'], reasoning: ['reasoning'] },
  },
  {
    // openai-go#227 (comments, role in each); `reasoning` and `reasoning_details` in its documentation.
    name: 'OpenRouter',
    habits: {
      comments: ['yes'],
      role: ['in each'],
      reasoning: ['reasoning', 'both names', 'an empty one beside'],
      empties: ['texts'],
      envelope: ['odd'],
      finishAt: ['twice', 'own chunk'],
    },
  },
  {
    // new-api#1630 (zeros), hermes-browser-extension#11 (a message at the end), dashscope-sdk-python#6 (a null in words), litellm#20246.
    name: 'a relay',
    habits: {
      figures: ['zeros', 'no completion', 'no prompt', 'texts'],
      usageAt: ['end', 'none', 'each and end'],
      usageNames: ['anthropic', 'responses', 'plain'],
      closes: ['beside the finish', 'before the finish'],
      unfinished: ['a word', 'left out'],
      body: ['events', 'whole', 'one event'],
      deltas: ['whole'],
      done: ['no', 'without an empty line'],
      reasoning: ['an empty one beside', 'tags beside'],
      json: ['spaced'],
    },
  },
];

/** Half of all answers are of servers of which nothing is known. */
export const oddServers: readonly OddServer[] = [
  ...Array.from(known, () => any),
  { ...any, name: 'any, with usage of its choices', flavor: 'llama-server', closingUsage: 'per-choice' },
  ...known.map((one) => ({ ...any, ...one })),
];
