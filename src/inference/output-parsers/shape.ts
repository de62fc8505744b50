import { deepseek, deepseekFenced } from './deepseek.ts';
import type { CallFormat } from './format.ts';
import { harmony } from './harmony.ts';
import { hermes, qwenXml } from './hermes.ts';
import { llama3 } from './llama3.ts';
import { mistral, mistralArray } from './mistral.ts';
import { knownThinkMarks, type ThinkMarks } from './thinking.ts';

/** How a model writes everything except plain text, as far as its chat template shows. */
export interface OutputShape {
  readonly thinking:
    { readonly type: 'marks'; readonly marks: ThinkMarks } | { readonly type: 'channels' } | { readonly type: 'none' };
  /** The template's format, or Hermes if the prompt must list the tools. */
  readonly calls: CallFormat;
  /** Whether the template itself lists the tools. If not, the prompt must, in Hermes' format. */
  readonly rendersTools: boolean;
}

/** Every format, and the literal in a template that reveals it. The first match counts. */
export const callFormats = {
  harmony: { format: harmony, shownBy: /<\|channel\|>/ },
  'deepseek-fenced': { format: deepseekFenced, shownBy: /<｜tool▁calls▁begin｜>[^]*```json/ },
  deepseek: { format: deepseek, shownBy: /<｜tool▁calls▁begin｜>/ },
  mistral: { format: mistral, shownBy: /\[TOOL_CALLS\][^]*\[ARGS\]/ },
  'mistral-array': { format: mistralArray, shownBy: /\[TOOL_CALLS\]/ },
  'qwen-xml': { format: qwenXml, shownBy: /<tool_call>[^]*<function=/ },
  // Other families write other things between the same marks. Quotes in the template's source may split what it prints.
  hermes: { format: hermes, shownBy: /<tool_call>[^]{0,300}?\{[^]{0,40}?"name\\?"/ },
  llama3: { format: llama3, shownBy: /\{"name": function name, "parameters": / },
} as const satisfies Readonly<Record<string, { readonly format: CallFormat; readonly shownBy: RegExp }>>;

export function outputShape(template: string): OutputShape {
  const found = Object.values(callFormats).find(({ shownBy }) => shownBy.test(template));
  const rendersTools = found !== undefined && /\btools\b/.test(template);
  const marks = knownThinkMarks.find(({ end }) => template.includes(end));
  return {
    thinking: callFormats.harmony.shownBy.test(template)
      ? { type: 'channels' }
      : marks === undefined
        ? { type: 'none' }
        : { type: 'marks', marks },
    calls: rendersTools ? found.format : hermes,
    rendersTools,
  };
}
