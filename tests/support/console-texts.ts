/** What the console says in each of its languages, read from its catalogues (web/src/…/messages/). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import ts from 'typescript';

import { inRepository } from './repository.ts';

export type ConsoleLanguage = 'en' | 'de' | 'zh';

const source = inRepository('web/src');

/** Key → its text, the forms of a plural joined. `folder`: `app` or `pages/<area>`. */
export function textsOf(folder: string, language: string): ReadonlyMap<string, string> {
  const file = join(source, folder, 'messages', `${language}.ts`);
  const parsed = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true);
  const texts = new Map<string, string>();
  const visit = (node: ts.Node): void => {
    if (ts.isObjectLiteralExpression(node)) {
      for (const property of node.properties) {
        assert.ok(ts.isPropertyAssignment(property), file);
        const strings: string[] = [];
        const collect = (inner: ts.Node): void => {
          if (ts.isStringLiteralLike(inner)) strings.push(inner.text);
          ts.forEachChild(inner, collect);
        };
        collect(property.initializer);
        texts.set((property.name as ts.Identifier).text, strings.join('\n'));
      }
      return;
    }
    ts.forEachChild(node, visit);
  };
  visit(parsed);
  return texts;
}

/** What a page says: of its area, or of `app`. */
export class ConsoleWords {
  readonly #language: ConsoleLanguage;
  readonly #areas = new Map<string, ReadonlyMap<string, string>>();

  constructor(language: ConsoleLanguage) {
    this.#language = language;
  }

  /** A text, its placeholders filled. */
  text(area: string, key: string, values: Readonly<Record<string, string>> = {}): string {
    let texts = this.#areas.get(area);
    if (texts === undefined) {
      texts = textsOf(area === 'app' ? 'app' : `pages/${area}`, this.#language);
      this.#areas.set(area, texts);
    }
    const text = texts.get(key);
    assert.ok(text !== undefined, `${area} has no text ${key}`);
    return text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);
  }

  /** The same, whatever stands for placeholders that have no value here. */
  pattern(area: string, key: string, values: Readonly<Record<string, string>> = {}): RegExp {
    const parts = this.text(area, key, values).split(/\{\w+\}/);
    return new RegExp(parts.map((part) => part.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')).join('.+'));
  }

  /** The name of a page in the navigation, which its area states. */
  page(area: string, path: string): string {
    const text = readFileSync(join(source, 'pages', area, 'area.tsx'), 'utf8');
    const label = new RegExp(`to: '${path}',\\s*label: \\{([^}]*)\\}`).exec(text)?.[1] ?? '';
    const name = new RegExp(`\\b${this.#language}: '([^']*)'`).exec(label)?.[1];
    assert.ok(name !== undefined, `${area} has no page ${path} in the navigation`);
    return name;
  }
}
