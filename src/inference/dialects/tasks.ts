import type { FieldPaths, GenerationRequest, Prompt, Task } from '../../generation/request.ts';

/** Most prompts in one request, as in OpenAI's embeddings. */
export const taskPromptsMax = 2_048;

/** A request whose prompts are embedded or ranked rather than continued: nothing concerning an answer is set. */
export const taskRequest = (
  model: string,
  prompt: Exclude<Prompt, { readonly type: 'messages' }>,
  task: Task,
  at: Pick<FieldPaths, 'promptAt' | 'tokenId'>,
): GenerationRequest => ({
  model,
  stream: false,
  prompt,
  task,
  choices: 1,
  maxTokens: undefined,
  sampling: noSampling,
  stop: [],
  tools: [],
  toolChoice: undefined,
  parallelToolCalls: undefined,
  constraint: undefined,
  effort: undefined,
  preserveThinking: false,
  logprobs: undefined,
  logitBias: undefined,
  at: {
    ...at,
    toolChoice: 'tool_choice',
    toolChoiceName: 'tool_choice',
    tool: (index, part) => `tools[${index}].${part}`,
    toolCallId: () => task.field,
    prompt: task.field,
    constraintType: 'response_format',
    constraintText: 'response_format',
    constraint: 'response_format',
  },
});

const noSampling: GenerationRequest['sampling'] = {
  temperature: undefined,
  topP: undefined,
  topK: undefined,
  minP: undefined,
  presencePenalty: undefined,
  frequencyPenalty: undefined,
  repetitionPenalty: undefined,
  seed: undefined,
};
