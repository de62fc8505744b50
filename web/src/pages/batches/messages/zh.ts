import type { Translated } from '../../../i18n/text.ts';
import type { BatchTexts } from './en.ts';

const zh: Translated<BatchTexts> = {
  answered: '已回答',
  batch: '批次',
  cancel: '取消',
  cancelAsk: '停止这个批次？',
  cancelled: '已取消',
  cancelling: '正在停止',
  cancelText: '正在运行的请求会停止，不收费。已完成的请求照常收费并交付。',
  close: '关闭',
  completed: '已完成',
  cost: '目前费用',
  created: '创建时间',
  download: '使用密钥下载',
  empty: '还没有批次',
  emptyText: '批次是一组请求，在没有其他人需要算力时运行，费用更低。由程序创建：',
  ended: '结束时间',
  endsBy: '最迟结束',
  expired: '已过期',
  failed: '被拒绝',
  faults: '文件中的问题',
  finalizing: '正在写入结果',
  for: '用途',
  in_progress: '运行中',
  key: '密钥',
  lead: '在没有其他人等待时运行的请求：进度、费用，以及如何取得答案。',
  line: '第 {line} 行',
  of: '{done} / {total}',
  progress: '进度',
  state: '状态',
  title: '批处理',
  validating: '正在检查',
  withoutAnswer: '没有答案',
};

export default zh;
