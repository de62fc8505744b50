import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openModel } from '../../../../src/inference/engines/llama/bindings.ts';
import { ChatTemplate } from '../../../../src/inference/engines/llama/chat-template.ts';
import { PromptTokenizer } from '../../../../src/inference/engines/llama/prompt.ts';
import type { Message, Tool } from '../../../../src/generation/request.ts';
import { promptTokenBound } from '../../../../src/inference/pipeline/fit.ts';
import { families } from '../../output-parsers/templates.ts';
import { tinyModel, user } from './support.ts';

const tail = "{{ '<|im_start|>assistant\n' }}";
const templates: Readonly<Record<string, string>> = {
  'one that knows no tools': `{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}${tail}`,
  'one that prints JSON': `{{ tools | tojson if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | tojson }}{% if m.tool_calls %}${families.hermes.calls}{% endif %}<|im_end|>\n{% endfor %}${tail}`,
  'one that indents': `{{ tools | tojson(indent=4) if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}${families.hermes.calls}{% endif %}<|im_end|>\n{% endfor %}${tail}`,
};

test('the bound of a prompt’s tokens holds with tools, calls and results, whatever the template writes', async (context) => {
  // Without merges every byte is a token: the worst tokenizer there can be.
  const file = tinyModel(context, { merges: 0, contextLength: 65_536 });
  const options = {
    modelFile: file,
    contextLength: 65_536,
    slots: 1,
    batchTokens: 64,
    threadsMax: 1,
    gpu: false,
  } as const;
  const model = await openModel(options);
  context.after(() => model.dispose());
  for (const [what, source] of Object.entries(templates)) {
    const tokenizer = new PromptTokenizer(model, new ChatTemplate(source, { bos: '', eos: '' }));
    for (const text of [
      '',
      'x',
      '"\\"'.repeat(40),
      '\n'.repeat(60),
      '\u0007'.repeat(30),
      '漢字'.repeat(40),
      '{"a":[1,2,3,{"b":""}]}',
    ]) {
      const tool: Tool = {
        type: 'function',
        name: `f${text}`,
        description: text,
        parameters: {
          type: 'object',
          properties: { [`p${text}`]: { type: 'string', description: text }, n: { enum: [1, 2, 3] } },
        },
      };
      const call = {
        id: `call_${text}`,
        name: tool.name,
        arguments: JSON.stringify({ a: text, b: [1, 2, 3, { c: 1 }] }),
      };
      const messages: readonly Message[] = [
        user('?'),
        {
          role: 'assistant',
          content: [],
          reasoning: [],
          toolCalls: [call, { ...call, id: 'call_2', arguments: `no JSON ${text}` }],
        },
        { role: 'tool', toolCallId: call.id, content: [{ type: 'text', text }] },
        { role: 'tool', toolCallId: 'call_2', content: [] },
      ];
      for (const tools of [[], [tool], [tool, { ...tool, parameters: undefined, description: undefined }]]) {
        const prompt = { type: 'messages', messages } as const;
        const [ids] = tokenizer.prompts({ prompt, effort: 'none', tools });
        const bound = promptTokenBound(prompt, tools);
        assert.ok(
          (ids?.length ?? Infinity) <= bound,
          `${what}, ${JSON.stringify(text)}, ${tools.length} tools: ${ids?.length} > ${bound}`,
        );
      }
    }
  }
});
