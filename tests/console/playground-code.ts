/** Prints the code that the playground exports of one request in each API family, streamed and whole, as JSON; its argument is the URL. */
import { exportsOf } from '../../web/src/pages/playground/export.ts';
import { families } from '../../web/src/pages/playground/families/families.ts';
import { familyNames } from '../../web/src/pages/playground/search.ts';

const [url = ''] = process.argv.slice(2);
const codes = familyNames.flatMap((name) =>
  [true, false].map((stream) => {
    const family = families[name];
    const body = family.body({
      model: 'demo',
      stream,
      system: name === 'completions' ? '' : `Be "brief", don't be long.`,
      turns: [{ kind: 'user', text: "It's the capital of `France`\n\u2028?", attachments: [] }],
      tools: name === 'completions' ? [] : [{ name: 'look_up', parameters: { type: 'object' } }],
      toolChoice: 'auto',
      format: { kind: 'text' },
      parameters: { max_tokens: 50, temperature: 0.5, top_k: 5, effort: 'low', seed: 3, stop: ['zzz'] },
    });
    const code = Object.fromEntries(exportsOf({ url, family, headers: {}, body }));
    return { name: `${name}, ${stream ? 'streamed' : 'whole'}`, code };
  }),
);
process.stdout.write(JSON.stringify(codes));
