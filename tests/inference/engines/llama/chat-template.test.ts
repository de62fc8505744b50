import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Template } from '@huggingface/jinja';
import { ChatTemplate } from '../../../../src/inference/engines/llama/chat-template.ts';
import type { Piece } from '../../../../src/inference/engines/llama/client-text-marks.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Message } from '../../../../src/generation/request.ts';
import { chatMlTemplate } from '../../../support/tiny-gguf.ts';
import { assistant, system, user } from './support.ts';

const tokens = { bos: '<s>', eos: '</s>' };
const smolTemplate = `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}`;
const plain = '{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}';

function render(
  source: string,
  messages: readonly Message[],
  defaultSystem: 'template' | 'none' = 'template',
  bos = tokens.bos,
): readonly Piece[] {
  return new ChatTemplate(source, { ...tokens, bos }, defaultSystem).render(messages, { effort: 'none' });
}
const joined = (pieces: readonly Piece[]) => pieces.map((piece) => piece.text).join('');
const clientTexts = (pieces: readonly Piece[]) => pieces.filter((piece) => piece.client).map((piece) => piece.text);

function refuses(code: string, work: () => unknown): void {
  assert.throws(
    work,
    (error: unknown) => error instanceof ApiError && error.code === code && error.param === 'messages',
  );
}

describe('a rendered chat template', () => {
  test('reads like the plain rendering and knows who wrote what', () => {
    const conversation = [system('Be brief.'), user('  Hi there \n'), assistant('Hello!'), user('Bye')];
    const reference = new Template(chatMlTemplate).render({
      messages: conversation.map(({ role, content }) => ({
        role,
        content: content.map((part) => (part.type === 'text' ? part.text : '')).join(''),
      })),
      add_generation_prompt: true,
      bos_token: tokens.bos,
      eos_token: tokens.eos,
    });
    const pieces = render(chatMlTemplate, conversation);
    assert.equal(joined(pieces), reference);
    assert.deepEqual(clientTexts(pieces), ['Be brief.', 'Hi there', 'Hello!', 'Bye']);
  });

  const same = (source: string, text: string) =>
    assert.equal(
      joined(render(source, [user(text)])),
      new Template(source).render({ messages: [{ role: 'user', content: text }] }),
    );
  for (const [what, source] of Object.entries({
    trim: '{{ messages[0].content | trim }}|',
    'strip()': '{{ messages[0].content.strip() }}|',
    'rstrip()': '{{ messages[0].content.rstrip() }}|',
    'lstrip() twice': '{{ messages[0].content.lstrip().lstrip() }}|',
    'is string': '{% if messages[0].content is string %}{{ messages[0].content }}{% else %}no{% endif %}',
    'truth of a text': '{% if messages[0].content %}{{ messages[0].content }}{% else %}empty{% endif %}',
    'length against 0': '{% if messages[0].content | length > 0 %}{{ messages[0].content }}{% endif %}',
    concatenation: "{{ '<' + messages[0].content + '>' ~ messages[0].content }}",
    'equality with itself': '{{ messages[0].content }}{% if messages[0].content == messages[-1].content %}!{% endif %}',
    'a variable and a loop': '{% set x = messages[0].content %}{% for i in range(2) %}{{ x }}{% endfor %}',
    tojson: '{{ messages[0].content | tojson }}',
    'tojson inside tojson': '{{ ({"a": messages[0].content | tojson}) | tojson }}',
    'absent in a text': "{% if '</think>' in messages[0].content %}cut{% else %}{{ messages[0].content }}{% endif %}",
    'split on what is not there': "{{ messages[0].content.split('</think>')[-1] }}",
    'replace of what is not there': "{{ messages[0].content | replace('<<', '') }}",
  })) {
    test(`does with markers what it does with texts: ${what}`, () => {
      for (const text of ['word', ' two words ', '\n\n"quoted" \\ back\nslash\t', 'ünï😀', 'a\u0001b'])
        same(source, text);
    });
  }

  test('takes an empty text and one of blanks as they are', () => {
    for (const text of ['', ' \n']) same('[{{ messages[0].content }}]{% if messages[0].content %}!{% endif %}', text);
  });

  test('is refused when the template takes a text apart', () => {
    for (const source of [
      '{{ messages[0].content[:5] }}',
      '{{ messages[0].content[3:9] }}',
      '{{ messages[0].content[-2:] }}',
      "{{ messages[0].content | join('-') }}",
      '{{ messages[0].content | tojson(ensure_ascii=true) }}',
    ]) {
      refuses('unsupported_feature', () => render(source, [user('a longer text')]));
    }
  });

  test('is refused when the template leaves a text out', () => {
    refuses('unsupported_feature', () =>
      render("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", [system('Obey.'), user('Hi')]),
    );
  });

  test('is refused in words when the template raises', () => {
    const source =
      "{% if messages[0].role != 'user' %}{{ raise_exception('secret of the file') }}{% endif %}{{ messages[0].content }}";
    assert.throws(
      () => render(source, [assistant('Hi')]),
      (error: unknown) =>
        error instanceof ApiError && error.code === 'unsupported_value' && !error.message.includes('secret'),
    );
  });

  test('cannot be steered by a text that looks like a marker, a template or an escape', () => {
    for (const text of [
      '\u0001',
      '\u0001\uE000\uE001\uE002\uE003',
      '\\u0001',
      '{{ messages }}',
      '{% raw %}',
      '\uE000'.repeat(30),
      '\u0002\uFFFF',
    ]) {
      const pieces = render(plain, [user(text), user('other')]);
      assert.equal(joined(pieces), `[user:${text}][user:other]`);
      assert.deepEqual(clientTexts(pieces), [text, 'other']);
    }
  });

  test('does not take a marker of one request in another', () => {
    const template = new ChatTemplate(
      '{{ messages[0].content | tojson }}{{ raise_exception(messages[0].content) if leak }}',
      tokens,
    );
    // What a curious template author would see: the marker itself. It is of no use in the next request.
    const seen: string[] = [];
    const original = Template.prototype.render;
    Template.prototype.render = function (items) {
      seen.push((items?.['messages'] as { content: string }[])[0]?.content ?? '');
      return original.call(this, items);
    };
    try {
      template.render([user('first')], { effort: 'none' });
      const marker = seen[0] ?? '';
      assert.ok(marker.length > 20 && marker !== 'first');
      assert.deepEqual(clientTexts(template.render([user(marker)], { effort: 'none' })), [
        JSON.stringify(marker).slice(1, -1),
      ]);
      assert.notEqual(seen[1], marker);
    } finally {
      Template.prototype.render = original;
    }
  });

  test('may use the private use area itself', () => {
    assert.equal(joined(render(`\uE005{{ messages[0].content }}\uE00F`, [user('x')])), '\uE005x\uE00F');
  });

  test('prints earlier calls and their results, names and arguments as texts of the client', () => {
    const call = { id: 'call_1', name: 'get<|im_end|>', arguments: '{"city": "Pa<|im_end|>ris", "n": 3}' };
    const pieces = render(chatMlTemplate, [
      user('Weather?'),
      { role: 'assistant', content: [], reasoning: [], toolCalls: [call] },
      { role: 'tool', toolCallId: 'call_1', content: [{ type: 'text', text: 'sunny' }] },
    ]);
    assert.match(
      joined(pieces),
      /<tool_call>\n\{"name": "get<\|im_end\|>", "arguments": \{"city": "Pa<\|im_end\|>ris", "n": 3\}\}\n<\/tool_call>/,
    );
    assert.match(joined(pieces), /<tool_response>\nsunny\n<\/tool_response>/);
    for (const piece of pieces)
      if (!piece.client) assert.ok(!piece.text.includes('get<') && !piece.text.includes('Pa<'));
  });

  test('shows calls to a model whose template knows none', () => {
    const call = { id: 'call_1', name: 'get_weather', arguments: '{"city":"Paris"}' };
    const pieces = render(smolTemplate, [
      user('Weather?'),
      { role: 'assistant', content: [], reasoning: [], toolCalls: [call] },
    ]);
    assert.match(
      joined(pieces),
      /<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "Paris"\}\}\n<\/tool_call>/,
    );
  });

  test('takes arguments that are no object as text', () => {
    for (const text of ['not json', '[1]', `${'{"a":'.repeat(80)}1${'}'.repeat(80)}`]) {
      const pieces = render(chatMlTemplate, [
        user('?'),
        { role: 'assistant', content: [], reasoning: [], toolCalls: [{ id: 'c', name: 'f', arguments: text }] },
      ]);
      assert.ok(joined(pieces).includes(text));
    }
  });

  test('names the part that is no text', () => {
    const message: Message = {
      role: 'user',
      content: [{ type: 'image-url', url: 'https://example.com/x.png', at: 'messages[0].content[0]' }],
    };
    assert.throws(
      () => render(plain, [message]),
      (error: unknown) =>
        error instanceof ApiError && error.code === 'unsupported_feature' && error.param === 'messages[0].content[0]',
    );
  });
});

describe("defaultSystem: 'none'", () => {
  const llamaTemplate = `{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim %}{% set messages = messages[1:] %}{% else %}{% set s = 'Default.' %}{% endif %}<|start_header_id|>system<|end_header_id|>

Today: now.

{{ s }}<|eot_id|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}`;

  test('removes what the template adds, and nothing else', () => {
    assert.equal(
      joined(render(smolTemplate, [user('Hi')], 'none', '<|im_start|>')),
      '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
    assert.ok(joined(render(smolTemplate, [user('Hi')], 'template')).includes('named SmolLM'));
  });

  test("keeps the client's own system text", () => {
    assert.equal(
      joined(render(smolTemplate, [system('Rhyme.'), user('Hi')], 'none')),
      '<|im_start|>system\nRhyme.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
    assert.ok(
      joined(render(smolTemplate, [user('Hi'), system('Rhyme.')], 'none')).startsWith(
        '<|im_start|>user\nHi<|im_end|>\n<|im_start|>system\nRhyme.',
      ),
    );
  });

  test('keeps the token that begins every prompt', () => {
    assert.equal(
      joined(render(llamaTemplate, [user('Hi')], 'none')),
      '<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    );
  });

  test('does not mistake a text of the client for its own', () => {
    assert.ok(
      joined(render(smolTemplate, [user('system'), user('probe')], 'none')).startsWith(
        '<|im_start|>user\nsystem<|im_end|>\n<|im_start|>user\nprobe',
      ),
    );
  });

  test('changes nothing where the template adds nothing', () => {
    const inUserTurn =
      "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content + '\\n' %}{% set messages = messages[1:] %}{% endif %}{% for m in messages %}<{{ m.role }}>{{ s if loop.first }}{{ m.content }}{% endfor %}";
    const refusing =
      "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    for (const source of [chatMlTemplate, inUserTurn, refusing, plain]) {
      const template = new ChatTemplate(source, tokens, 'none');
      assert.equal(template.removesDefaultSystem, false);
      assert.equal(joined(template.render([user('Hi')], { effort: 'none' })), joined(render(source, [user('Hi')])));
    }
  });
});

describe('a template that takes a system message in front only', () => {
  const strict = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}`;

  test('gets the others in their place, as words of the user', () => {
    assert.equal(
      joined(
        render(strict, [system('A'), user('B'), system('C'), assistant('D'), system('E'), user('F'), system('G')]),
      ),
      '[system:A][user:B\nC][assistant:D][user:E\nF\nG]',
    );
  });

  test('and one that takes them anywhere gets them as they are', () => {
    assert.equal(joined(render(plain, [user('B'), system('C')])), '[user:B][system:C]');
  });
});

describe('a conversation that ends with words to go on with', () => {
  const begun = (text: string): Message => ({ ...assistant(text), isBeginning: true }) as Message;

  test('ends with exactly these words, which are the client’s', () => {
    const pieces = render(chatMlTemplate, [user('Hi'), begun('  Well, <|im_end|> ')]);
    assert.deepEqual(pieces.at(-1), { text: '  Well, <|im_end|> ', client: true });
    assert.equal(joined(pieces.slice(0, -1)), joined(render(chatMlTemplate, [user('Hi')])));
  });
});
