import { derivedFormat, type Prober } from './derive.ts';
import type { CallFormat } from './format.ts';
import { harmony } from './harmony.ts';
import { hermes, namedFormats } from './named-formats.ts';
import { thinkingOf, type FoundThinking } from './thinking.ts';

/** How a model writes everything except plain text, as its chat template prints it. */
export interface OutputShape extends FoundThinking {
  /**
   * `own`: the template lists the tools. `described`: it knows no tools, so the prompt lists them, and shows how calls are written.
   * `unknown`: it lists tools or cannot be rendered with them, and how the model calls them is not known.
   */
  readonly tools: 'own' | 'described' | 'unknown';
  readonly calls: CallFormat;
  /** Whether the template prints the calls of earlier turns. */
  readonly printsCalls: boolean;
}

/** `listsTools`: whether the template prints the tools that it is given; `undefined`: it cannot be rendered with them. */
export function outputShape(source: string, render: Prober, listsTools: boolean | undefined): OutputShape {
  const found = thinkingOf(source, render);
  const { thinking } = found;
  const unknown = { ...found, tools: 'unknown', calls: hermes, printsCalls: false } as const;
  if (listsTools === undefined) return unknown;
  const tools = listsTools ? 'own' : 'described';
  if (listsTools && thinking.type === 'channels') return { ...found, tools, calls: harmony, printsCalls: true };
  const derived = derivedFormat(render, thinking.type === 'marks' ? thinking.marks.end : undefined);
  if (derived !== undefined) return { ...found, tools, calls: derived, printsCalls: true };
  if (!listsTools) return { ...found, tools, calls: hermes, printsCalls: false };
  // A template that prints calls in a form of its own does not mean another one that its words resemble.
  const named = printsCall(render) ? undefined : namedFormats.find(({ shownBy }) => shownBy.test(source));
  return named === undefined ? unknown : { ...found, tools, calls: named.format, printsCalls: false };
}

function printsCall(render: Prober): boolean {
  const call = { id: 'pr0be1d01', type: 'function', function: { name: 'probefirst', arguments: {} } };
  const turns = [
    { role: 'user', content: 'probeuser' },
    { role: 'assistant', content: '', tool_calls: [call] },
  ] as const;
  const printed = render(turns, ['probenext', 'probenext']);
  return printed?.includes('probefirst') === true;
}
