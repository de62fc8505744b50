import { markOf, type CallFormat } from './format.ts';

const object = {
  open: '',
  beforeName: '{"name": ',
  name: 'json',
  beforeArguments: ', "arguments": ',
  arguments: { type: 'json' },
  afterArguments: '}',
  close: '',
  ids: 'any',
} as const;

/** Hermes: what a prompt describes to models whose template has no tools. */
export const hermes: CallFormat = {
  ...object,
  openCall: '<tool_call>\n',
  closeCall: '\n</tool_call>',
  between: '\n',
  mark: '<tool_call>',
};

/**
 * Formats that no probe shows: the model was trained on one that its template leaves out of earlier turns, or messages have headers. Each
 * with what reveals it in the source of the template.
 */
export const namedFormats: readonly { readonly format: CallFormat; readonly shownBy: RegExp }[] = [
  // Granite 3.
  {
    format: {
      ...object,
      open: '<|tool_call|>[',
      openCall: '',
      closeCall: '',
      between: ', ',
      close: ']',
      mark: markOf('<|tool_call|>'),
    },
    shownBy: /<\|tool_call\|>.{0,40}JSON list/,
  },
  // LFM 2: the template lists the tools between these marks, and shows no call.
  {
    format: {
      open: '<|tool_call_start|>[',
      openCall: '',
      beforeName: '',
      name: 'bare',
      beforeArguments: '(',
      arguments: { type: 'code', beforeValue: '=', between: ', ', quote: '"' },
      afterArguments: '',
      closeCall: ')',
      between: ', ',
      close: ']<|tool_call_end|>',
      mark: '<|tool_call_start|>',
      ids: 'any',
    },
    shownBy: /List of tools: (?:<\|tool_list_start\|>)?\[/,
  },
  // Quotes in the template's source may split what it prints.
  { format: hermes, shownBy: /<tool_call>[^]{0,300}?\{[^]{0,40}?"name\\?"/ },
];
