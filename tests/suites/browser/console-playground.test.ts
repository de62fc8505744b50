/** The playground and the models: a key of the page, every API family, tools, JSON, files, several models, stopping, code, links. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, test } from 'node:test';

import { scriptedModel, TestService, until } from '../../support/service.ts';
import { owner, Visitor } from '../../support/visitor.ts';
import { browserOfFile, looks, Person } from './browser.ts';
import type { Look } from './browser.ts';

const openBrowser = browserOfFile();

const service = new TestService({ config: '' });
/** Markup, a long word, and the other direction of writing, as a model may write them. */
const hostile = `<img src=x onerror="alert(1)"><script>alert(1)</script> ${'long'.repeat(60)} \u202Ertl`;
/** What a model writes for people, and what it may write for their browser. */
const markdown = `## Two ways

1. **First**: \`npm start\`, see [the page](https://example.org/a?b=1)
2. *Second*
   - [x] nested

> A quote &amp; more
> <b onclick="alert(1)">bold</b>

| a | b |
|--:|---|
| 1 | ${'long'.repeat(40)} |

\`\`\`js
const a = '<b>' ; // 1
\`\`\`

\`\`\`diff
-old
+new
\`\`\`

\`\`\`python
@wrapped
def f(a): return "text" + 1
\`\`\`

\`\`\`unheard-of
const a = 1;
\`\`\`

![a picture](https://example.org/tracked.png) ![inline](data:image/png;base64,AA==) [run](javascript:alert(1))

<script>alert(1)</script><img src=x onerror="alert(1)"><iframe src="https://example.org"></iframe>

---
The end.`;
const scripts = `- { when: { last_role: tool }, say: [{ text: "With that: 7 degrees." }] }
- { when: { last_text: weather }, say: [{ reasoning: "I need the weather." }, { tool_call: { name: get_weather, arguments: { city: Paris } } }] }
- { when: { last_text: Anna }, say: [{ text: '{"name":"Anna","age":34,"city":"Kyoto"}' }] }
- { when: { last_text: slowly }, say: [{ text: "drip " }], repeat: 2000, pace_ms: 40 }
- { when: { last_text: hostile }, say: [{ text: [${JSON.stringify(hostile)}] }] }
- { when: { last_text: markdown }, say: [{ text: [${Array.from(markdown.match(/[^]{1,7}/g)!, (piece) => JSON.stringify(piece)).join(', ')}] }] }
- { when: { last_text: fail }, say: [{ text: "not this" }], fault: { after_tokens: 0, type: error, code: backend_timeout } }
- { when: { last_text: break }, say: [{ text: "A beginning and then" }], fault: { after_tokens: 2, type: error } }
- { say: [{ reasoning: "Thinking first. " }, { text: "It is " }, { text: "Paris." }] }`;
const settings =
  'reasoning: { efforts: [none, low, high], default: low }\ncapabilities: { vision: true, reasoning: true }';
const further = (id: string): string => scriptedModel(scripts, { id, settings }).replace(/^models:\n/, '');

before(async () => {
  service.writeConfig(
    `server:\n  inference: { port: 0 }\n  account: { port: 0 }\n${[
      scriptedModel(scripts, { settings }),
      further('org/second'),
      further('third'),
    ].join('\n')}\n`,
  );
  await service.start();
  await new Visitor(service).becomeOwner();
});
after(() => service.dispose());

test('what becomes usable is not half faded for a moment, in which its contrast would be too low', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await hasKey(person);
  const opacities = await page
    .getByRole('button', { name: 'Clear' })
    .evaluate((button: { ariaDisabled: string | null }) =>
      ['true', null].map((disabled) => {
        button.ariaDisabled = disabled;
        return (globalThis as unknown as { getComputedStyle: (of: object) => { opacity: string } }).getComputedStyle(
          button,
        ).opacity;
      }),
    );
  assert.deepEqual(opacities, ['0.55', '1']);
  await person.leave();
});

const lookNamed = (wanted: string): Look => looks.find(({ name }) => name === wanted)!;

/** Signed in, at a page. */
async function personAt(path: string, look = lookNamed('light, 1280 px')): Promise<Person> {
  const person = await Person.at(await openBrowser(), look, [service.accountUrl, service.url]);
  const { page } = person;
  await page.goto(`${service.accountUrl}/sign-in?next=${encodeURIComponent(path)}`);
  await person.fill('E-mail address', owner.email);
  await person.fill('Password', owner.password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.waitForURL(service.accountUrl + path);
  return person;
}

/** It is there by itself. */
const hasKey = (person: Person): Promise<void> => person.reads('A key of this session, up to $1.00');

const answers = ({ page }: Person) => page.getByRole('article', { name: /^Answer of / });

/** Runs what is written, and waits until the last answer has its cost. */
async function ask(person: Person, text: string, label = 'Message'): Promise<void> {
  const { page } = person;
  const count = await answers(person).count();
  await page.getByRole('textbox', { name: label, exact: true }).fill(text);
  await page.keyboard.press('Enter');
  await until(async () => (await answers(person).count()) > count);
  await answers(person)
    .last()
    .getByText(/\$0\.00\d+/)
    .waitFor();
}

test('each family streams with the key of the session, and shows reasoning, figures, the exact cost and the receipt', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await person.reads('Ask something, or begin with an example');
  await person.look();
  await hasKey(person);
  for (const family of ['chat', 'responses', 'messages', 'completions']) {
    await page.getByLabel('API', { exact: true }).selectOption(family);
    await ask(person, 'capital of France?', family === 'completions' ? 'Text to continue' : 'Message');
    const answer = answers(person).last();
    await answer.getByText('It is Paris.', { exact: true }).waitFor();
    await answer.getByText(/^\d+ \+ \d+ tokens$/).waitFor();
    await answer.getByText(/^first token after \d+ ms$/).waitFor();
    assert.equal(
      await answer.getByText('Reasoning', { exact: true }).count(),
      family === 'completions' ? 0 : 1,
      family,
    );
    const [newest] = (await service.usage(1)).requests;
    // All decimals are shown.
    const exact = (await answer
      .getByText(/^\$0\.\d{8}$/)
      .first()
      .textContent())!;
    assert.equal(Math.round(Number(exact.replace('$', '')) * 1e8), newest!.cost_microcents, family);
    await answer.getByRole('button', { name: 'Raw' }).click();
    await answer.getByText(new RegExp(`^POST /v1/`)).waitFor();
    await answer
      .getByText(/^\{.*Paris\..*\}$/)
      .first()
      .waitFor();
    await answer.getByRole('button', { name: 'Raw' }).click();
  }
  await person.look();
  // Reasoning can be read again.
  await answers(person).first().getByText('Reasoning', { exact: true }).click();
  await answers(person).first().getByText('Thinking first.').waitFor();
  // The receipt, and back: the conversation is still there.
  await answers(person).first().getByRole('link', { name: 'Receipt' }).click();
  await page.waitForURL(/\/requests\//);
  await person.reads('Request to demo');
  await page.goBack();
  await answers(person).first().getByText('It is Paris.').waitFor();
  assert.equal(await answers(person).count(), 4);
  await person.leave();
});

test('a tool is called, its result is edited and sent back, and sent anew', async () => {
  for (const family of ['chat', 'responses', 'messages']) {
    const person = await personAt(`/playground${family === 'chat' ? '' : `?family=${family}`}`);
    const { page } = person;
    await hasKey(person);
    await person.press('A tool call that you answer');
    await ask(person, 'What is the weather in Paris?');
    await answers(person).last().getByText('"city": "Paris"').waitFor();
    const result = page.getByRole('textbox', { name: 'Result of get_weather' });
    assert.match(await result.inputValue(), /"temperature_c": 18/);
    await result.fill('{"temperature_c": 7}');
    if (family === 'chat') await person.look();
    await result.press('Control+Enter');
    await answers(person).last().getByText('With that: 7 degrees.').waitFor();
    await answers(person).last().getByRole('button', { name: 'Raw' }).click();
    const raw = answers(person)
      .last()
      .getByRole('region', { name: /^POST / });
    assert.match(await raw.innerText(), /temperature_c\\": 7/);
    await answers(person).last().getByRole('button', { name: 'Raw' }).click();
    await person.press('Send these results instead');
    await until(async () => (await answers(person).count()) === 2);
    await answers(person).last().getByText('With that: 7 degrees.').waitFor();
    await person.leave();
  }
});

test('an answer follows a JSON Schema; what is no JSON is said before it is sent', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await hasKey(person);
  await person.press('An answer that follows a JSON Schema');
  await page.waitForURL(/format=json_schema/);
  const schema = page.getByRole('textbox', { name: 'JSON Schema' });
  const good = await schema.inputValue();
  await schema.fill('{"type": ');
  await person.reads(/^Not valid JSON yet: /);
  assert.equal(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled(), true);
  await schema.fill(good);
  await ask(person, 'Anna is 34 years old and lives in Kyoto.');
  await answers(person).last().getByText('{"name":"Anna","age":34,"city":"Kyoto"}', { exact: true }).first().waitFor();
  await answers(person).last().getByRole('button', { name: 'Raw' }).click();
  await answers(person)
    .last()
    .getByText(/"json_schema": \{/)
    .waitFor();
  await person.leave();
});

test('stopping ends the request: what was generated until then is charged', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await hasKey(person);
  await page.getByRole('textbox', { name: 'Message' }).fill('slowly');
  await person.press('Run');
  await answers(person)
    .last()
    .getByText(/drip drip/)
    .waitFor();
  await page.keyboard.press('Escape');
  const answer = answers(person).last();
  await answer.getByText('stopped', { exact: true }).waitFor();
  await answer.getByText(/^\d+ \+ \d+ tokens$/).waitFor();
  await until(async () => (await service.usage(1)).requests[0]?.ending === 'client_left');
  const [row] = (await service.usage(1)).requests;
  assert.ok(row!.completion_tokens >= 2 && row!.completion_tokens < 2000, JSON.stringify(row));
  assert.equal(row!.cost_microcents, row!.prompt_tokens * 5 + row!.completion_tokens * 20);
  await answer.getByText(`${row!.prompt_tokens} + ${row!.completion_tokens} tokens`).waitFor();
  await person.look();
  await person.leave();
});

for (const look of looks.filter(({ name }) => name === 'dark, 360 px' || name === 'light, 1280 px'))
  test(`three models answer side by side, also with what wants to take effect: ${look.name}`, async () => {
    const person = await personAt('/playground', look);
    const { page } = person;
    await hasKey(person);
    await person.press('Add a model');
    await person.press('Add a model');
    await page.waitForURL(/model=demo&model2=org%2Fsecond&model3=third/);
    assert.equal(await page.getByRole('button', { name: 'Add a model' }).isDisabled(), true);
    await page.getByRole('textbox', { name: 'Message' }).fill('hostile');
    await person.press('Run');
    await until(async () => (await answers(person).getByText('longlong').count()) === 3);
    await until(
      async () =>
        (await answers(person)
          .getByText(/^\$0\.00/)
          .count()) === 3,
    );
    await person.look();
    await page.getByRole('button', { name: 'Remove org/second' }).click();
    await until(async () => (await answers(person).count()) === 2);
    await person.press('Clear');
    await person.reads('Ask something, or begin with an example');
    await person.leave();
  });

for (const look of looks.filter(({ name }) => name === 'dark, 360 px' || name === 'light, 1280 px'))
  test(`an answer is read as Markdown, of which nothing takes effect: ${look.name}`, async () => {
    const person = await personAt('/playground', look);
    const { page } = person;
    await hasKey(person);
    await page.getByRole('textbox', { name: 'Message' }).fill('markdown');
    await person.press('Run');
    const answer = answers(person).last();
    await answer.getByText('The end.', { exact: true }).waitFor();
    await answer.getByText(/^\$0\.\d{8}$/).waitFor();
    await answer.getByRole('list').first().locator('strong:text("First")').waitFor();
    await answer.getByRole('cell', { name: '1', exact: true }).waitFor();
    await answer.getByText('A quote & more').waitFor();
    const code = answer.getByRole('region', { name: 'js' });
    assert.equal(await code.innerText(), "const a = '<b>' ; // 1");
    // The keyword, the string and the comment have colours, which are looked at below.
    await code.locator('span').first().waitFor();
    assert.deepEqual(await code.locator('span').allInnerTexts(), ['const', "'<b>'", '// 1']);
    assert.equal(await answer.getByRole('region', { name: 'diff' }).locator('span').count(), 2);
    assert.equal(await answer.getByRole('region', { name: 'unheard-of' }).locator('span').count(), 0);
    assert.equal(await answer.locator('img, script, iframe, b, input, [onclick], [onerror]').count(), 0);
    const links = await answer
      .locator('a[target]')
      .evaluateAll((all: readonly { href: string; rel: string; textContent: string }[]) =>
        all.map(({ href, rel, textContent }) => [textContent, href, rel]),
      );
    const rel = 'noopener noreferrer nofollow';
    assert.deepEqual(links, [
      ['the page', 'https://example.org/a?b=1', rel],
      ['a picture', 'https://example.org/tracked.png', rel],
    ]);
    await answer.getByRole('list').nth(1).getByText('☑ nested').waitFor();
    await person.look();
    await person.leave();
  });

test('errors before and in the middle of an answer have code, explanation and id', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await person.press('Use another key');
  await page.getByLabel('Key', { exact: true }).fill('tkh_wrong');
  await person.press('Use');
  await page.getByRole('textbox', { name: 'Message' }).fill('hi');
  person.expects(401);
  await person.press('Run');
  await page.getByRole('alert').getByText('invalid_api_key').waitFor();
  await page.getByRole('alert').getByText(/^req_/).waitFor();
  assert.equal(await page.getByRole('alert').getByRole('link').getAttribute('href'), '/docs/errors/invalid_api_key');
  await person.look();
  await person.press('Forget the key');
  await hasKey(person);
  person.expects(504);
  await page.getByRole('textbox', { name: 'Message' }).fill('fail');
  await person.press('Run');
  await answers(person).last().getByText('backend_timeout').waitFor();
  await page.getByRole('textbox', { name: 'Message' }).fill('break');
  await person.press('Run');
  await answers(person).last().getByText('A beginning').waitFor();
  await answers(person).last().getByText('backend_http_error').waitFor();
  await person.leave();
});

test('the exported command sends the same request; a link has the settings, and neither key nor content', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await person.press('Use another key');
  await page.getByLabel('Key', { exact: true }).fill(service.key);
  await person.press('Use');
  await page.getByLabel('temperature').fill('0.5');
  await page.getByLabel('System prompt').fill("Don't be long.");
  await ask(person, "It's the capital of `France`, $HOME \\n?");
  await answers(person).last().getByRole('button', { name: 'Code' }).click();
  const dialog = page.getByRole('dialog');
  const command = await dialog.getByRole('region', { name: 'curl' }).innerText();
  await person.look();
  const { stdout, code } = await shell(command, { TOKENHOUSE_KEY: service.key });
  assert.equal(code, 0, stdout);
  assert.match(stdout, /"content":"Paris\."/);
  const [again, first] = (await service.usage(2)).requests;
  assert.deepEqual(
    [again!.prompt_tokens, again!.completion_tokens, again!.finish],
    [first!.prompt_tokens, first!.completion_tokens, first!.finish],
  );
  for (const title of ['Python', 'JavaScript', 'Claude Code', 'Codex']) {
    await dialog.getByRole('tab', { name: title }).click();
    const text = await dialog.getByRole('region', { name: title }).innerText();
    assert.ok(text.includes('TOKENHOUSE_KEY') && !text.includes(service.key), text);
  }
  await page.keyboard.press('Escape');
  const url = page.url();
  assert.equal(url, `${service.accountUrl}/playground?temperature=0.5`);
  const stored = (await page.evaluate(
    'JSON.stringify([location.href, document.cookie, { ...localStorage }, { ...sessionStorage }, history.state])',
  )) as string;
  for (const secret of [service.key, 'capital', 'be long']) assert.ok(!stored.includes(secret), stored);
  // The instructions are kept where one asks for it, and no longer than that.
  await page.getByLabel('Keep it in this browser').check();
  for (const [text, isKept] of [
    ["Don't be long.", true],
    ['Be short.', true],
    ['', false],
  ] as const) {
    await page.getByLabel('System prompt').fill(text);
    if (!isKept) await page.getByLabel('Keep it in this browser').uncheck();
    await page.reload();
    await hasKey(person);
    assert.equal(await page.getByLabel('System prompt').inputValue(), text);
    assert.equal(await page.getByLabel('Keep it in this browser').isChecked(), isKept);
  }
  assert.doesNotMatch(String(await page.evaluate('JSON.stringify(localStorage)')), /playground/);
  const other = await personAt('/playground?temperature=0.5');
  assert.equal(await other.page.getByLabel('temperature').inputValue(), '0.5');
  await other.reads('Ask something, or begin with an example');
  await other.leave();
  await person.leave();
});

for (const look of looks.filter(({ name }) => name === 'dark, 360 px' || name === 'light, 1280 px'))
  test(`a prompt is saved by name, used again, renamed and deleted: ${look.name}`, async () => {
    const person = await personAt('/playground?temperature=0.5', look);
    const { page } = person;
    await hasKey(person);
    if (look.width < 1000) await page.locator('summary', { hasText: /^Settings$/ }).click();
    await page.getByLabel('System prompt').fill('Be short.');
    await ask(person, 'capital of France?');
    await page.getByRole('textbox', { name: 'Message' }).fill('And of Japan?');
    const save = async (name: string): Promise<void> => {
      await person.fill('Name of the prompt', name);
      await person.press('Save what is on the page');
    };
    await person.press('Saved prompts');
    await person.reads('Nothing is saved yet.');
    await save(' Capitals ');
    const list = page.getByRole('dialog').getByRole('list');
    await list.getByText('demo · 3 messages').waitFor();
    await save('Other');
    await person.fill('Name of the prompt', 'Capitals');
    await person.reads('It takes the place of the prompt of this name.');
    await person.press('Rename Other');
    await list.getByLabel('Name of the prompt').fill('Capitals');
    await list.getByRole('button', { name: 'Rename', exact: true }).click();
    await list.getByText('There is a prompt of this name.').waitFor();
    await person.look();
    await list.getByLabel('Name of the prompt').fill('Towns');
    await list.getByRole('button', { name: 'Rename', exact: true }).click();
    await person.press('Delete Capitals');
    await person.reads('Capitals will be gone from this browser.');
    await person.press('Delete');
    await list.getByText('Towns', { exact: true }).waitFor();
    assert.equal(await list.getByRole('listitem').count(), 1);
    // Another time, at another address.
    await page.goto(`${service.accountUrl}/playground`);
    await hasKey(person);
    await person.press('Saved prompts');
    await person.press('Use Towns');
    await page.waitForURL(/temperature=0.5/);
    if (look.width < 1000) await page.locator('summary', { hasText: /^Settings$/ }).click();
    assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be short.');
    assert.equal(await page.getByRole('textbox', { name: 'Message' }).inputValue(), 'And of Japan?');
    await answers(person).getByText('It is Paris.').waitFor();
    await person.look();
    // Its messages are sent as if they had been written here.
    await answers(person).last().getByRole('button', { name: 'Code' }).click();
    const code = await page.getByRole('dialog').getByRole('region', { name: 'curl' }).innerText();
    assert.ok(code.includes('capital of France?') && code.includes('Be short.'), code);
    await page.keyboard.press('Escape');
    await ask(person, 'And of Japan?');
    await answers(person).last().getByRole('button', { name: 'Raw' }).click();
    const sent = await answers(person)
      .last()
      .getByRole('region', { name: /^POST / })
      .innerText();
    for (const part of ['Be short.', 'capital of France?', 'It is Paris.', 'And of Japan?', '"temperature": 0.5'])
      assert.ok(sent.includes(part), sent);
    await person.leave();
  });

async function shell(command: string, variables: Readonly<Record<string, string>>) {
  const child = spawn('sh', ['-c', command], { env: { ...process.env, ...variables } });
  let stdout = '';
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { stdout, code };
}

/** One pixel. */
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

test('an image goes with the message, and a file through the files API', async () => {
  const person = await personAt('/playground');
  const { page } = person;
  await hasKey(person);
  for (const family of ['chat', 'responses', 'messages']) {
    await page.getByLabel('API', { exact: true }).selectOption(family);
    await page.getByLabel('Images, PDF and text files').setInputFiles([
      { name: 'dot.png', mimeType: 'image/png', buffer: png },
      { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('The capital is Paris.') },
    ]);
    await page.getByRole('button', { name: 'Remove notes.txt' }).waitFor();
    await ask(person, 'capital?');
    await answers(person).last().getByText('It is Paris.').waitFor();
    await page.getByRole('img', { name: 'dot.png' }).last().waitFor();
    await answers(person).last().getByRole('button', { name: 'Raw' }).click();
    await answers(person)
      .last()
      .getByText(/"file_id": "file/)
      .first()
      .waitFor();
    await person.press('Clear');
  }
  await person.leave();
});

test('the models, a card, and from there to the playground', async () => {
  const person = await personAt('/models');
  const { page } = person;
  await page.getByRole('link', { name: 'org/second', exact: true }).waitFor();
  await page.getByRole('searchbox', { name: 'Filter' }).fill('second');
  await until(async () => (await page.locator('[data-row]').count()) === 1);
  await page.getByRole('link', { name: 'org/second', exact: true }).click();
  await page.waitForURL(/\/models\/org%2Fsecond$/);
  await page.getByRole('row', { name: /^Tools yes no yes yes$/ }).waitFor();
  await page.getByRole('region', { name: 'curl' }).getByText('"model":"org/second"').waitFor();
  await person.look();
  await page.reload();
  await page.getByRole('heading', { name: 'org/second' }).waitFor();
  await page.getByRole('link', { name: 'Try' }).click();
  await page.waitForURL(/\/playground\?model=org%2Fsecond$/);
  assert.equal(await page.getByLabel('Model 1').inputValue(), 'org/second');
  await person.leave();
});
