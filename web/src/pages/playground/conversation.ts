/** A conversation as no API family writes it: each of them makes its request of it (`families/`). Plain data. */

export interface ImageAttachment {
  readonly kind: 'image';
  readonly name: string;
  /** For example `image/png`. */
  readonly mediaType: string;
  readonly base64: string;
}

/** Uploaded through the files API. */
export interface FileAttachment {
  readonly kind: 'file';
  readonly name: string;
  readonly fileId: string;
}

export type Attachment = ImageAttachment | FileAttachment;

export interface UserTurn {
  readonly kind: 'user';
  readonly text: string;
  readonly attachments: readonly Attachment[];
}

export type Block =
  | { readonly kind: 'text' | 'reasoning'; readonly text: string }
  | {
      readonly kind: 'call';
      /** In its answer. */
      readonly key: string;
      /** By which its result names it. */
      readonly id: string;
      readonly name: string;
      /** JSON, as far as the model has written it. */
      readonly arguments: string;
    };
export type Call = Extract<Block, { readonly kind: 'call' }>;

/** What a conversation needs of an answer; the page knows more of it. */
export interface AnswerTurn {
  readonly kind: 'answer';
  readonly blocks: readonly Block[];
  /** By the ids of the calls: what they returned, as the person has written it. */
  readonly results: Readonly<Record<string, string>>;
}

export type Turn = UserTurn | AnswerTurn;

export const callsOf = ({ blocks }: Pick<AnswerTurn, 'blocks'>): readonly Call[] =>
  blocks.filter((block) => block.kind === 'call');

export const textOf = ({ blocks }: Pick<AnswerTurn, 'blocks'>): string =>
  blocks.reduce((text, block) => (block.kind === 'text' ? text + block.text : text), '');

/** A function that the model may call. */
export interface Tool {
  readonly name: string;
  readonly description?: string;
  /** JSON Schema. */
  readonly parameters?: unknown;
}

/** By their names in chat completions. */
export interface Parameters {
  readonly max_tokens?: number | undefined;
  readonly temperature?: number | undefined;
  readonly top_p?: number | undefined;
  readonly top_k?: number | undefined;
  readonly min_p?: number | undefined;
  readonly frequency_penalty?: number | undefined;
  readonly presence_penalty?: number | undefined;
  readonly repetition_penalty?: number | undefined;
  readonly seed?: number | undefined;
  readonly effort?: string | undefined;
  readonly stop?: readonly string[] | undefined;
}

export type Format =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: unknown };

export type ToolChoice = 'auto' | 'none' | 'required';

/** What is asked of a model. */
export interface Asked {
  readonly model: string;
  readonly stream: boolean;
  /** Empty: none. */
  readonly system: string;
  readonly turns: readonly Turn[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly format: Format;
  readonly parameters: Parameters;
}
