#!/usr/bin/env bash
# The learning experiment on one GPU, stage by stage; each goes on where it was stopped.
#
#   usage: FOLDER=/tmp/learn SEED=1 benchmarks/learning/experiment.sh STAGE...
#   stages: model material traces sft best grpo judge-base judge-sft judge-best judge-grpo table
#
# LEARN holds further flags of all training, BEST, GRPO and JUDGE of that command; LIMIT ends a training stage after so many seconds (its last
# checkpoint counts).
set -euo pipefail
folder=${FOLDER:-learning} seed=${SEED:-1} limit=${LIMIT:-36000}
materials=$folder/materials prompt=$(dirname "$0")/prompt.md
splits=(seen longer new_mix slow)

eval_tasks() { for split in "${splits[@]}"; do printf ' --eval-tasks file:%s/%s.jsonl' "$materials" "$split"; done; }

learn() { # NAME COMMAND FLAGS...: 124 is the limit, and not an error
  local name=$1; shift
  # shellcheck disable=SC2086
  timeout "$limit" python -m kb_ray.train "$@" --model-name "$folder/smollm2" --output "$folder/$name$seed" \
    --seed "$seed" --lora-dropout 0 ${LEARN:-} || [ $? = 124 ]
}

rollouts() { # of best-of-n and grpo alike
  echo "--start-from $folder/sft$seed --tasks file:$materials/train.jsonl --prompt-option $prompt --max-tokens 480 \
    --batch-size 16 --group-size 8 --n-correctness 3 --checkpoint-every 2 --rollout-tokens 262144 \
    --no-exclude-flagged"
}

judge() { # NAME MODEL: what is slow is timed, the other splits are not
  local model=$2
  # shellcheck disable=SC2086
  answer() {
    python -m kb_ray.evaluate --model-path "$model" --prompt "$prompt" --temperature 0 --max-tokens 480 \
      --n-correctness 3 --batch-size 256 --output "$folder/judged/$1" "${@:2}" ${JUDGE:-}
  }
  answer "$1$seed-slow" --tasks "file:$materials/slow.jsonl"
  answer "$1$seed-rest" --tasks "file:$materials/seen.jsonl" --tasks "file:$materials/longer.jsonl" \
    --tasks "file:$materials/new_mix.jsonl" --no-measure-performance
}

for stage in "$@"; do
  echo "== $stage"
  # shellcheck disable=SC2046,SC2086
  case $stage in
    model) python -m kb_ray.model.smollm2 --output "$folder/smollm2" ;;
    material) python -m benchmarks.learning.material "$materials" --traces 300 ;;
    traces)
      python -m kb_ray.generate --tasks "file:$materials/shown.jsonl" --model "scripted:$materials/answers.jsonl" \
        --prompt "$prompt" --output "$folder/traces" --n-correctness 3 --no-measure-performance ;;
    sft)
      learn sft sft --data "$folder/traces" --epochs 14 --batch-size 16 --learning-rate 0.001 \
        $(eval_tasks) ;;
    best) learn best best-of-n $(rollouts) --learning-rate 0.0001 --warmup-steps 4 ${BEST:-} ;;
    grpo) learn grpo grpo $(rollouts) --mode multi_turn --max-turns 2 --learning-rate 0.0001 --warmup-steps 4 ${GRPO:-} ;;
    judge-base) judge base "$folder/smollm2" ;;
    judge-*) judge "${stage#judge-}" "$folder/${stage#judge-}$seed" ;;
    table)
      python -m benchmarks.learning.table $(for store in "$folder"/judged/*-slow; do
        name=$(basename "$store" -slow); echo "$name=$store,${store%-slow}-rest"; done) ;;
    *) echo "no stage $stage" >&2; exit 2 ;;
  esac
done
