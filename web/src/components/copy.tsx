import { useEffect, useRef, useState } from 'react';

import { useText } from '../i18n/text.ts';
import type { AppTexts } from '../app/messages/en.ts';
import { Button, IconButton } from './button.tsx';
import { CheckIcon, CopyIcon } from './icons.tsx';

/**
 * Copies, also where the browser has no clipboard for us (plain HTTP): then a field is selected and the browser's own command is
 * used, inside the dialog that holds the focus, because outside of it nothing can be selected. Resolves with whether it worked.
 */
export async function copyText(text: string, near: Element): Promise<boolean> {
  if (navigator.clipboard !== undefined) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Not allowed here: the other way.
    }
  }
  const field = document.createElement('textarea');
  field.value = text;
  field.readOnly = true;
  field.style.position = 'fixed';
  field.style.opacity = '0';
  const focused = document.activeElement;
  (near.closest('dialog') ?? document.body).append(field);
  field.select();
  try {
    return document.execCommand('copy');
  } catch {
    return false;
  } finally {
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

interface CopyProps {
  readonly text: string;
  /** What is copied, for readers of the screen: "Copy the key". */
  readonly label?: string;
  /** With its text beside the icon. */
  readonly wide?: boolean;
  readonly look?: 'plain' | 'primary' | 'quiet';
  readonly onCopied?: () => void;
}

/** Says "copied" only when it was. */
export function CopyButton({ text, label, wide, look = 'quiet', onCopied }: CopyProps) {
  const t = useText<AppTexts>('app');
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle');
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async (near: Element): Promise<void> => {
    const isCopied = await copyText(text, near);
    setState(isCopied ? 'copied' : 'failed');
    if (isCopied) onCopied?.();
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setState('idle'), 2500);
  };
  const words = state === 'idle' ? (label ?? t('copy')) : state === 'copied' ? t('copied') : t('copyFailed');
  const icon = state === 'copied' ? <CheckIcon /> : <CopyIcon />;
  return (
    <>
      {wide === true ? (
        <Button look={look} onClick={(event) => void copy(event.currentTarget)}>
          {icon}
          {words}
        </Button>
      ) : (
        <IconButton small look={look} label={words} icon={icon} onClick={(event) => void copy(event.currentTarget)} />
      )}
      <span role="status" className="visually-hidden">
        {state === 'idle' ? '' : words}
      </span>
    </>
  );
}
