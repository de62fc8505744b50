import type { Argument, Command, Option } from 'commander';

import { errorTable } from '../platform/errors.ts';

export type Shell = 'bash' | 'zsh' | 'fish';

/**
 * What makes a shell complete `tokenhouse …`, printed from the declarations of the commands. Only ids of models, keys and
 * accounts are fetched when they are needed (`complete-values`), and kept by the shell for half a minute.
 */
export function completionScript(program: Command, shell: Shell): string {
  const places = placesOf(program, '');
  switch (shell) {
    case 'bash':
      return bashScript(places);
    case 'zsh':
      return zshScript(places);
    case 'fish':
      return fishScript(places);
  }
}

/** A command and what may follow it. */
interface Place {
  /** Words of the command, for example `keys list`; empty for the program. */
  readonly at: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly {
    readonly names: readonly string[];
    readonly description: string;
    /** `undefined`: takes no value. */
    readonly value: Value | undefined;
  }[];
  readonly arguments: readonly Value[];
}

type Value =
  | { readonly kind: 'words'; readonly words: readonly string[] }
  | { readonly kind: 'file' }
  | { readonly kind: 'asked'; readonly of: AskedKind }
  /** Free text. */
  | { readonly kind: 'free' };

/** Values that only the configuration or the database has. */
export const askedKinds = ['model', 'key-id', 'account-id'] as const;
export type AskedKind = (typeof askedKinds)[number];

function placesOf(command: Command, at: string): readonly Place[] {
  const help = command.createHelp();
  const commands = help.visibleCommands(command).filter((child) => child.name() !== 'help');
  const place: Place = {
    at,
    commands: commands.map((child) => ({ name: child.name(), description: child.description() })),
    options: help.visibleOptions(command).map((option) => ({
      names: [option.short, option.long].filter((name) => name !== undefined && name !== null),
      description: option.description,
      value: valueOfOption(option),
    })),
    arguments: command.registeredArguments.map(valueOfArgument),
  };
  return [place, ...commands.flatMap((child) => placesOf(child, `${at} ${child.name()}`.trim()))];
}

function valueOfOption(option: Option): Value | undefined {
  const [, name] = /[<[]([\w-]+)/.exec(option.flags) ?? [];
  if (name === undefined) return undefined;
  return valueNamed(name, option.argChoices);
}

const valueOfArgument = (argument: Argument): Value => valueNamed(argument.name(), argument.argChoices);

/** The name of a value determines what may be entered. */
function valueNamed(name: string, choices: readonly string[] | undefined): Value {
  if (choices !== undefined) return { kind: 'words', words: choices };
  if (name === 'file') return { kind: 'file' };
  if (name === 'code') return { kind: 'words', words: Object.keys(errorTable) };
  const asked = askedKinds.find((kind) => kind === name);
  return asked === undefined ? { kind: 'free' } : { kind: 'asked', of: asked };
}

/** Shells see `words`, `files`, `asked KIND` or `none`. */
function inShell(value: Value): string {
  switch (value.kind) {
    case 'words':
      return `words ${value.words.join(' ')}`;
    case 'file':
      return 'files';
    case 'asked':
      return `asked ${value.of}`;
    case 'free':
      return 'none';
  }
}

/** For a position and the words before it: `case` lines that work in both bash and zsh. */
function tables(places: readonly Place[]): { readonly walk: string; readonly takes: string; readonly offers: string } {
  const commands = places.flatMap(({ at, commands: children }) =>
    children.map(({ name }) => `"${at}/${name}") at="${`${at} ${name}`.trim()}"; count=0 ;;`),
  );
  const takes = places.flatMap(({ at, options }) =>
    options.flatMap(({ names, value }) =>
      value === undefined ? [] : names.map((name) => `"${at}/${name}") expected="${inShell(value)}" ;;`),
    ),
  );
  const offers = places.flatMap(({ at, commands: children, arguments: values }) => [
    ...(children.length === 0 ? [] : [`"${at}/0") expected="words ${children.map(({ name }) => name).join(' ')}" ;;`]),
    ...values.map((value, index) => `"${at}/${index}") expected="${inShell(value)}" ;;`),
  ]);
  const lines = (list: readonly string[]): string => list.map((line) => `    ${line}`).join('\n');
  return { walk: lines(commands), takes: lines(takes), offers: lines(offers) };
}

const optionLines = (places: readonly Place[]): string =>
  places
    .map(({ at, options }) => `    "${at}") options="${options.flatMap(({ names }) => names).join(' ')}" ;;`)
    .join('\n');

/** Sets `at`, `count`, `config` and `expected` from the words before the completed one. */
function walker(places: readonly Place[]): string {
  const { walk, takes, offers } = tables(places);
  return `_tokenhouse_step() {
  local word="$1"
  if [ -n "$expected" ]; then
    if [ "$pending" = "-c" ] || [ "$pending" = "--config" ]; then config="$word"; fi
    expected=""
    return
  fi
  case "$word" in -*)
    pending="$word"
    case "$at/$word" in
${takes}
    esac
    return ;;
  esac
  case "$at/$word" in
${walk}
    *) count=$((count + 1)) ;;
  esac
}
_tokenhouse_expect() {
  options=""
  case "$at" in
${optionLines(places)}
  esac
  if [ -n "$expected" ]; then options=""; return; fi
  case "$at/$count" in
${offers}
  esac
}
# Values that only the configuration or the database knows, kept for half a minute.
_tokenhouse_ask() {
  local request="$1 $PWD $config"
  if [ "$request" != "$_tokenhouse_request" ] || [ $((SECONDS - _tokenhouse_asked_at)) -ge 30 ]; then
    if [ -n "$config" ]; then
      _tokenhouse_answer="$(command "$program" complete-values "$1" --config "$config" 2>/dev/null)"
    else
      _tokenhouse_answer="$(command "$program" complete-values "$1" 2>/dev/null)"
    fi
    _tokenhouse_request="$request"
    _tokenhouse_asked_at=$SECONDS
  fi
}
_tokenhouse_request="" _tokenhouse_answer="" _tokenhouse_asked_at=0
`;
}

const bashScript = (places: readonly Place[]): string => `# bash completion of tokenhouse
${walker(places)}_tokenhouse() {
  local program="\${COMP_WORDS[0]}" at="" count=0 config="" expected="" pending="" options="" line current word
  # Not COMP_WORDS: it is cut at colons, which stand in the ids of models.
  line="\${COMP_LINE:0:COMP_POINT}"
  current="\${line##*[[:space:]]}"
  line="\${line%"$current"}"
  local -a typed
  read -ra typed <<<"$line"
  for word in "\${typed[@]:1}"; do _tokenhouse_step "$word"; done
  _tokenhouse_expect
  COMPREPLY=()
  case "$current" in -*) expected="words $options" ;; esac
  case "$expected" in
    "words "*) COMPREPLY=($(compgen -W "\${expected#words }" -- "$current")) ;;
    "asked "*)
      _tokenhouse_ask "\${expected#asked }"
      local IFS=$'\\n'
      for word in $_tokenhouse_answer; do
        word="\${word%%$'\\t'*}"
        case "$word" in "$current"*) COMPREPLY+=("$word") ;; esac
      done ;;
    files)
      compopt -o filenames 2>/dev/null
      local IFS=$'\\n'
      COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
  # Readline replaces only what stands after the last colon.
  case "$current$COMP_WORDBREAKS" in *:*:*)
    local before="\${current%"\${current##*:}"}" index
    for index in "\${!COMPREPLY[@]}"; do COMPREPLY[index]="\${COMPREPLY[index]#"$before"}"; done ;;
  esac
}
complete -F _tokenhouse tokenhouse`;

const zshScript = (places: readonly Place[]): string => `#compdef tokenhouse
# zsh completion of tokenhouse
${walker(places)}_tokenhouse() {
  local program="\${words[1]}" at="" count=0 config="" expected="" pending="" options="" word
  for word in "\${(@)words[2,CURRENT-1]}"; do _tokenhouse_step "$word"; done
  _tokenhouse_expect
  case "\${words[CURRENT]}" in -*) expected="words $options" ;; esac
  case "$expected" in
    "words "*) compadd -- \${(s: :)\${expected#words }} ;;
    "asked "*)
      _tokenhouse_ask "\${expected#asked }"
      local -a values shown
      for word in "\${(@f)_tokenhouse_answer}"; do
        values+=("\${word%%$'\\t'*}")
        shown+=("\${word/$'\\t'/  }")
      done
      compadd -l -d shown -a values ;;
    files) _files ;;
  esac
}
if [ "$funcstack[1]" = "_tokenhouse" ]; then _tokenhouse "$@"; else compdef _tokenhouse tokenhouse; fi`;

function fishScript(places: readonly Place[]): string {
  const commands = places.flatMap(({ at, commands: children }) => children.map(({ name }) => `${at}/${name}`));
  const valued = places.flatMap(({ at, options }) =>
    options.flatMap(({ names, value }) => (value === undefined ? [] : names.map((name) => `${at}/${name}`))),
  );
  const lines = places.flatMap(({ at, commands: children, options, arguments: values }) => [
    ...children.map(
      ({ name, description }) =>
        `complete -c tokenhouse -n ${when(at, 0)} -a ${fishQuoted(name)} -d ${fishQuoted(description)}`,
    ),
    ...options.map(({ names, description, value }) => {
      const flags = names.map((name) => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
      const takes = value === undefined ? '' : ` ${inFish(value, '-r')}`;
      return `complete -c tokenhouse -n ${when(at)} ${flags.join(' ')}${takes} -d ${fishQuoted(description)}`;
    }),
    ...values
      .map((value, index) => ({ value, index }))
      .filter(({ value }) => value.kind !== 'free')
      .map(({ value, index }) => `complete -c tokenhouse -n ${when(at, index)} ${inFish(value, '')}`),
  ]);
  return `# fish completion of tokenhouse
complete -c tokenhouse -f
function __tokenhouse_at --description 'whether these commands, and this many arguments, stand before the cursor'
  set -l commands ${commands.map(fishQuoted).join(' ')}
  set -l valued ${valued.map(fishQuoted).join(' ')}
  set -l at ''
  set -l count 0
  set -l skip 0
  for word in (commandline -opc)[2..-1]
    if test $skip = 1
      set skip 0
    else if string match -q -- '-*' $word
      contains -- "$at/$word" $valued; and set skip 1
    else if contains -- "$at/$word" $commands
      set at (string trim -- "$at $word")
      set count 0
    else
      set count (math $count + 1)
    end
  end
  test "$at" = "$argv[1]"; and begin; test (count $argv) = 1; or test $count = $argv[2]; end
end
function __tokenhouse_values
  set -l command (commandline -opc)[1]
  set -l request "$argv[1] $PWD"
  set -l now (date +%s)
  if test "$request" != "$__tokenhouse_request"; or test (math $now - $__tokenhouse_asked_at) -ge 30
    set -g __tokenhouse_answer ($command complete-values $argv[1] 2>/dev/null)
    set -g __tokenhouse_request $request
    set -g __tokenhouse_asked_at $now
  end
  printf '%s\\n' $__tokenhouse_answer
end
${lines.join('\n')}`;
}

const when = (at: string, count?: number): string =>
  `"__tokenhouse_at '${at}'${count === undefined ? '' : ` ${count}`}"`;

function inFish(value: Value, required: '-r' | ''): string {
  switch (value.kind) {
    case 'words':
      return `${required} -a ${fishQuoted(value.words.join(' '))}`.trim();
    case 'file':
      return `${required} -F`.trim();
    case 'asked':
      return `${required} -a "(__tokenhouse_values ${value.of})"`.trim();
    case 'free':
      return required;
  }
}

const fishQuoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
