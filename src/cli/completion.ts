import type { Command } from 'commander';

import { errorTable } from '../platform/errors.ts';

export type Shell = 'bash' | 'zsh' | 'fish';

/** A word that may come next, and what it is. */
export type Candidate = readonly [word: string, about: string];

/** What a shell gets instead of a word where a file name may come. */
export const anyFile: Candidate = [':files', ''];

/**
 * Candidates for the last of these words, which a user has begun to type, from the declarations of the commands. The user has
 * pressed a key and is waiting, so what cannot be read yields no candidates.
 */
export async function candidatesFor(
  program: Command,
  words: readonly string[],
  directory: string,
): Promise<readonly Candidate[]> {
  const { at, count, pending, config } = placeOf(program, words.slice(0, -1));
  const current = words.at(-1) ?? '';
  const help = at.createHelp();
  const offered = async (): Promise<readonly Candidate[]> => {
    if (pending !== undefined) return await valuesOf(pending, { config, directory });
    if (current.startsWith('-'))
      return help
        .visibleOptions(at)
        .flatMap(({ short, long, description }) =>
          [short, long].flatMap((name): Candidate[] => (name ? [[name, description]] : [])),
        );
    const commands = help.visibleCommands(at).filter((child) => child.name() !== 'help');
    if (commands.length > 0 && count === 0) return commands.map((child) => [child.name(), child.description()]);
    const argument = at.registeredArguments[count];
    if (argument === undefined) return [];
    return await valuesOf({ name: argument.name(), choices: argument.argChoices }, { config, directory });
  };
  const all = await offered().catch(() => []);
  return all.filter((one) => one === anyFile || one[0].startsWith(current));
}

interface Wanted {
  readonly name: string;
  readonly choices: readonly string[] | undefined;
}

/** Where the words lead: the command, how many of its arguments are given, and the option whose value comes next. */
function placeOf(program: Command, words: readonly string[]) {
  let at = program;
  let count = 0;
  let pending: Wanted | undefined;
  let config: string | undefined;
  for (const word of words) {
    if (pending !== undefined) {
      if (pending === configOption) config = word;
      pending = undefined;
    } else if (word.startsWith('-')) {
      const option = at.options.find(({ short, long }) => word === short || word === long);
      const [, name] = /[<[]([\w-]+)/.exec(option?.flags ?? '') ?? [];
      if (option?.long === '--config') pending = configOption;
      else if (name !== undefined) pending = { name, choices: option?.argChoices };
    } else {
      const child = at.commands.find((command) => command.name() === word);
      if (child === undefined) count++;
      else [at, count] = [child, 0];
    }
  }
  return { at, count, pending, config };
}

const configOption: Wanted = { name: 'file', choices: undefined };

/** The name of a value determines what may be entered; any other is free text. */
async function valuesOf(
  { name, choices }: Wanted,
  { config, directory }: { readonly config: string | undefined; readonly directory: string },
): Promise<readonly Candidate[]> {
  if (choices !== undefined) return choices.map((word) => [word, '']);
  if (name === 'file') return [anyFile];
  if (name === 'code') return Object.entries(errorTable).map(([code, { meaning }]) => [code, meaning]);
  if (name !== 'model' && name !== 'key-id' && name !== 'account-id') return [];
  const { readContext } = await import('./read-context.ts');
  const { models, storage } = readContext(config, directory).config;
  if (name === 'model') return models.map(({ id, displayName }) => [id, displayName]);
  const [{ openStoreReader }, { repositoriesOn }] = await Promise.all([
    import('../app/stores.ts'),
    import('../store/repositories/repositories.ts'),
  ]);
  const db = await openStoreReader(storage);
  if (db === undefined) return [];
  try {
    const repositories = repositoriesOn(db);
    if (name === 'account-id')
      return (await repositories.listAccounts({})).map((account) => [account.id, account.name]);
    const keys = await repositories.listKeys({});
    return keys.filter(({ status }) => status === 'active').map((key) => [key.id, key.name]);
  } finally {
    await db.destroy();
  }
}

/**
 * Scripts that make a shell complete `tokenhouse …`: they call the program, `tokenhouse __complete WORDS`, which prints one
 * candidate per line, followed by a tab and its description.
 */
export const completionScripts: Readonly<Record<Shell, string>> = {
  bash: `# bash completion of tokenhouse
_tokenhouse() {
  # Not COMP_WORDS: it is cut at colons, which stand in the ids of models.
  local line="\${COMP_LINE:0:COMP_POINT}" current before candidate index
  current="\${line##*[[:space:]]}"
  local -a words
  read -ra words <<<"\${line%"$current"}"
  COMPREPLY=()
  while IFS= read -r candidate; do
    if [ "$candidate" = "${anyFile[0]}" ]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$current")
    else
      COMPREPLY+=("\${candidate%%$'\\t'*}")
    fi
  done < <(command "\${words[0]}" __complete "\${words[@]:1}" "$current" 2>/dev/null)
  # Readline replaces only what stands after the last colon.
  case "$current$COMP_WORDBREAKS" in *:*:*)
    before="\${current%"\${current##*:}"}"
    for index in "\${!COMPREPLY[@]}"; do COMPREPLY[index]="\${COMPREPLY[index]#"$before"}"; done ;;
  esac
}
complete -F _tokenhouse tokenhouse`,
  zsh: `#compdef tokenhouse
# zsh completion of tokenhouse
_tokenhouse() {
  local candidate
  local -a values shown
  for candidate in "\${(@f)$(command "\${words[1]}" __complete "\${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    case "$candidate" in
      ${anyFile[0]}) _files ;;
      ?*) values+=("\${candidate%%$'\\t'*}") shown+=("\${candidate/$'\\t'/  }") ;;
    esac
  done
  (( \${#values} )) && compadd -l -d shown -a values
}
if [ "$funcstack[1]" = "_tokenhouse" ]; then _tokenhouse "$@"; else compdef _tokenhouse tokenhouse; fi`,
  fish: `# fish completion of tokenhouse
function __tokenhouse_candidates
  set -l words (commandline -opc) (commandline -ct)
  for candidate in (command $words[1] __complete $words[2..-1] 2>/dev/null)
    if test "$candidate" = ${anyFile[0]}
      __fish_complete_path (commandline -ct)
    else
      printf '%s\\n' $candidate
    end
  end
end
complete -c tokenhouse -f -a '(__tokenhouse_candidates)'`,
};
