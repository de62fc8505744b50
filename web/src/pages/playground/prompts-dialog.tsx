import { useState } from 'react';

import { Button } from '../../components/button.tsx';
import { ConfirmDialog, Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import {
  deletePrompt,
  keepPrompt,
  keptPrompts,
  promptCharactersMax,
  promptName,
  promptNameMax,
  promptsMax,
  renamePrompt,
} from './kept-prompts.ts';
import type { Kept, KeptPrompt } from './kept-prompts.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import styles from './playground.module.css';

interface PromptsDialogProps {
  readonly owner: string;
  /** What is on the page now. */
  readonly current: Omit<KeptPrompt, 'name'>;
  readonly onUse: (prompt: KeptPrompt) => void;
  readonly onClose: () => void;
}

/** The saved prompts: one saves what is on the page, and uses, renames and deletes what was saved. */
export function PromptsDialog({ owner, current, onUse, onClose }: PromptsDialogProps) {
  const t = useText<PlaygroundTexts>('playground');
  const [prompts, setPrompts] = useState(() => keptPrompts(owner));
  const [doing, setDoing] = useState<{ readonly what: 'rename' | 'delete'; readonly name: string }>();
  const [name, setName] = useState('');
  const [problem, setProblem] = useState<Exclude<Kept, 'kept'>>();
  const read = (): void => setPrompts(keptPrompts(owner));
  const isDone = (kept: Kept): boolean => {
    setProblem(kept === 'kept' ? undefined : kept);
    read();
    return kept === 'kept';
  };
  const save = (): void => {
    const written = promptName(name);
    if (written !== '' && isDone(keepPrompt(owner, { ...current, name: written }))) setName('');
  };
  if (doing?.what === 'delete')
    return (
      <ConfirmDialog
        title={t('promptDelete')}
        action={t('promptDelete')}
        danger
        onConfirm={() => {
          deletePrompt(owner, doing.name);
          setDoing(undefined);
          read();
        }}
        onClose={() => setDoing(undefined)}
      >
        {t('promptDeleteText', { name: doing.name })}
      </ConfirmDialog>
    );
  const faults = {
    tooMany: t('promptTooMany', { n: promptsMax }),
    tooLong: t('promptTooLong', { n: promptCharactersMax }),
    noRoom: t('promptNoRoom'),
    nameTaken: t('promptNameTaken'),
  };
  const fault = { error: problem && faults[problem] };
  return (
    <Dialog title={t('prompts')} onClose={onClose}>
      <p className={styles['promptsLead']}>{t('promptsText')}</p>
      <Form onSubmit={save} label={t('promptSave')}>
        <TextField
          label={t('promptName')}
          maxLength={promptNameMax}
          autoComplete="off"
          value={name}
          onChange={({ target }) => setName(target.value)}
          {...(prompts.some((one) => one.name === promptName(name)) ? { hint: t('promptReplaces') } : {})}
          {...(doing === undefined ? fault : {})}
        />
        <FormButtons>
          <Button type="submit" look="primary">
            {t('promptSave')}
          </Button>
        </FormButtons>
      </Form>
      {prompts.length === 0 ? (
        <p className={styles['promptsLead']}>{t('promptsNone')}</p>
      ) : (
        <ul className={styles['prompts']} aria-label={t('prompts')}>
          {prompts.map((prompt) => (
            <li key={prompt.name}>
              {doing?.name === prompt.name ? (
                <Renaming
                  of={prompt}
                  error={fault.error}
                  onRename={(to) => {
                    if (isDone(renamePrompt(owner, prompt.name, to))) setDoing(undefined);
                  }}
                  onCancel={() => setDoing(undefined)}
                />
              ) : (
                <Row
                  of={prompt}
                  onUse={() => onUse(prompt)}
                  onDo={(what) => {
                    setProblem(undefined);
                    setDoing({ what, name: prompt.name });
                  }}
                />
              )}
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

interface RenamingProps {
  readonly of: KeptPrompt;
  readonly error: string | undefined;
  readonly onRename: (to: string) => void;
  readonly onCancel: () => void;
}

function Renaming({ of: { name }, error, onRename, onCancel }: RenamingProps) {
  const t = useText<PlaygroundTexts>('playground');
  const rename = (form: FormData): void => {
    const to = promptName(String(form.get('to')));
    if (to !== '') onRename(to);
  };
  return (
    <Form label={t('promptRename')} onSubmit={rename}>
      <TextField
        label={t('promptName')}
        name="to"
        maxLength={promptNameMax}
        autoComplete="off"
        autoFocus
        defaultValue={name}
        error={error}
      />
      <FormButtons>
        <Button small onClick={onCancel}>
          {t('cancel')}
        </Button>
        <Button small type="submit">
          {t('promptRename')}
        </Button>
      </FormButtons>
    </Form>
  );
}

interface RowProps {
  readonly of: KeptPrompt;
  readonly onUse: () => void;
  readonly onDo: (what: 'rename' | 'delete') => void;
}

function Row({ of: { name, search, messages, draft }, onUse, onDo }: RowProps) {
  const t = useText<PlaygroundTexts>('playground');
  return (
    <div className={styles['prompt']}>
      <div>
        <bdi>{name}</bdi>
        <small>
          {[search.model, t('promptMessages', { n: messages.length + (draft === '' ? 0 : 1) })]
            .filter((part) => part !== undefined)
            .join(' · ')}
        </small>
      </div>
      <Button small onClick={onUse} aria-label={t('promptUseOf', { name })}>
        {t('promptUse')}
      </Button>
      <Button small look="quiet" onClick={() => onDo('rename')} aria-label={t('promptRenameOf', { name })}>
        {t('promptRename')}
      </Button>
      <Button small look="quiet" onClick={() => onDo('delete')} aria-label={t('promptDeleteOf', { name })}>
        {t('promptDelete')}
      </Button>
    </div>
  );
}
