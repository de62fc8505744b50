import { useRef, useState } from 'react';
import type { ClipboardEvent, DragEvent, KeyboardEvent, RefObject } from 'react';

import { Button, IconButton } from '../../components/button.tsx';
import { CloseIcon, StartIcon } from '../../components/icons.tsx';
import { controlClass } from '../../components/form.tsx';
import { ErrorNote } from '../../components/state.tsx';
import { formatBytes } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { imageBytesMax, imageTypes, readImage, upload } from './attach.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import { attachmentsMax } from './playground.ts';
import type { Playground, PlaygroundState } from './playground.ts';
import { Unreachable } from './run.ts';
import styles from './playground.module.css';

interface ComposerProps {
  readonly playground: Playground;
  readonly state: PlaygroundState;
  readonly url: string;
  /** Completions continue a text: no attachments, and another name. */
  readonly isCompletion: boolean;
  readonly takesImages: boolean;
  readonly mayRun: boolean;
  readonly onRun: () => void;
  readonly field: RefObject<HTMLTextAreaElement | null>;
}

/** Where one writes what is asked next. */
export function Composer(props: ComposerProps) {
  const { playground, state, isCompletion, mayRun, onRun, field } = props;
  const t = useText<PlaygroundTexts>('playground');
  const { attach, uploading, error } = useAttach(props);
  const label = isCompletion ? t('messageCompletions') : t('message');
  const onPaste = (event: ClipboardEvent): void => {
    if (isCompletion || event.clipboardData.files.length === 0) return;
    event.preventDefault();
    void attach([...event.clipboardData.files]);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // Enter also ends what an input method writes, and on a keyboard of a phone there is no Shift with it.
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing || isTouched()) return;
    event.preventDefault();
    // With Ctrl it would reach the page, which runs too.
    event.stopPropagation();
    onRun();
  };
  const onDrop = (event: DragEvent): void => {
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    if (!isCompletion) void attach([...event.dataTransfer.files]);
  };
  return (
    <div className={styles['composer']} onDrop={onDrop} onDragOver={(event) => event.preventDefault()}>
      {error !== undefined && <ErrorNote error={error} />}
      <Attached playground={playground} state={state} />
      <textarea
        ref={field}
        className={controlClass}
        rows={2}
        aria-label={label}
        placeholder={`${label} …`}
        value={state.draft}
        onChange={({ target }) => playground.set({ draft: target.value })}
        onPaste={onPaste}
        onKeyDown={onKeyDown}
      />
      <div className={styles['composerFoot']}>
        {!isCompletion && (
          <AttachButton isDisabled={state.key === undefined} takesImages={props.takesImages} onFiles={attach} />
        )}
        {uploading !== undefined && <span role="status">{t('uploading', { name: uploading })}</span>}
        <span className={styles['hint']}>{t('runHint')}</span>
        {playground.isRunning ? (
          <Button key="stop" look="danger" onClick={() => playground.stop()}>
            {t('stop')}
          </Button>
        ) : (
          <Button key="run" look="primary" disabled={!mayRun} onClick={onRun}>
            <StartIcon />
            {t('run')}
          </Button>
        )}
      </div>
    </div>
  );
}

const isTouched = (): boolean => matchMedia('(pointer: coarse)').matches;

function Attached({ playground, state }: Pick<ComposerProps, 'playground' | 'state'>) {
  const t = useText<PlaygroundTexts>('playground');
  if (state.attachments.length === 0) return null;
  return (
    <ul className={styles['attached']} aria-label={t('attached')}>
      {state.attachments.map((attachment, at) => (
        <li key={at}>
          <span>{attachment.name}</span>
          <IconButton
            small
            label={t('remove', { name: attachment.name })}
            icon={<CloseIcon />}
            onClick={() => playground.set({ attachments: state.attachments.filter((_, index) => index !== at) })}
          />
        </li>
      ))}
    </ul>
  );
}

interface AttachButtonProps extends Pick<ComposerProps, 'takesImages'> {
  readonly isDisabled: boolean;
  readonly onFiles: (files: readonly File[]) => Promise<void>;
}

function AttachButton({ isDisabled, takesImages, onFiles }: AttachButtonProps) {
  const t = useText<PlaygroundTexts>('playground');
  const input = useRef<HTMLInputElement>(null);
  const hint = t(takesImages ? 'attachHint' : 'attachHintNoImages');
  return (
    <>
      <Button disabled={isDisabled} title={hint} onClick={() => input.current?.click()}>
        {t('attach')}
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={hint}
        onChange={({ target }) => {
          const files = [...(target.files ?? [])];
          target.value = '';
          void onFiles(files);
        }}
      />
    </>
  );
}

/** Takes files in one after the other. */
function useAttach({ playground, url, takesImages }: ComposerProps) {
  const t = useText<PlaygroundTexts>('playground');
  const [uploading, setUploading] = useState<string>();
  const [error, setError] = useState<unknown>();
  const attach = async (files: readonly File[]): Promise<void> => {
    setError(undefined);
    try {
      for (const file of files) {
        const { attachments, key } = playground.state();
        if (attachments.length >= attachmentsMax) throw new Error(t('attachMost', { n: attachmentsMax }));
        if (key === undefined) return;
        const isImage = imageTypes.includes(file.type);
        if (isImage && !takesImages) throw new Error(t('noImages', { name: file.name }));
        if (isImage && file.size > imageBytesMax)
          throw new Error(t('imageTooLarge', { name: file.name, size: formatBytes(imageBytesMax) }));
        setUploading(file.name);
        const attachment = await (isImage ? readImage(file) : upload(file, url, key.secret));
        playground.set({ attachments: [...playground.state().attachments, attachment] });
      }
    } catch (failure) {
      setError(failure instanceof Unreachable ? new Error(t('unreachable', { url: failure.url })) : failure);
    } finally {
      setUploading(undefined);
    }
  };
  return { attach, uploading, error };
}
