_aks__flex__node() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="aks__flex__node"
                ;;
            aks__flex__node,agent)
                cmd="aks__flex__node__subcmd__daemon"
                ;;
            aks__flex__node,bootstrap)
                cmd="aks__flex__node__subcmd__start"
                ;;
            aks__flex__node,bundle)
                cmd="aks__flex__node__subcmd__bundle"
                ;;
            aks__flex__node,completion)
                cmd="aks__flex__node__subcmd__completion"
                ;;
            aks__flex__node,daemon)
                cmd="aks__flex__node__subcmd__daemon"
                ;;
            aks__flex__node,help)
                cmd="aks__flex__node__subcmd__help"
                ;;
            aks__flex__node,plan)
                cmd="aks__flex__node__subcmd__plan"
                ;;
            aks__flex__node,reset)
                cmd="aks__flex__node__subcmd__reset"
                ;;
            aks__flex__node,restart)
                cmd="aks__flex__node__subcmd__restart"
                ;;
            aks__flex__node,rollback)
                cmd="aks__flex__node__subcmd__rollback"
                ;;
            aks__flex__node,slots)
                cmd="aks__flex__node__subcmd__slots"
                ;;
            aks__flex__node,start)
                cmd="aks__flex__node__subcmd__start"
                ;;
            aks__flex__node,start-node)
                cmd="aks__flex__node__subcmd__start__subcmd__node"
                ;;
            aks__flex__node,status)
                cmd="aks__flex__node__subcmd__status"
                ;;
            aks__flex__node,stop)
                cmd="aks__flex__node__subcmd__stop"
                ;;
            aks__flex__node,unbootstrap)
                cmd="aks__flex__node__subcmd__reset"
                ;;
            aks__flex__node,upgrade)
                cmd="aks__flex__node__subcmd__upgrade"
                ;;
            aks__flex__node,version)
                cmd="aks__flex__node__subcmd__version"
                ;;
            aks__flex__node__subcmd__help,bundle)
                cmd="aks__flex__node__subcmd__help__subcmd__bundle"
                ;;
            aks__flex__node__subcmd__help,completion)
                cmd="aks__flex__node__subcmd__help__subcmd__completion"
                ;;
            aks__flex__node__subcmd__help,daemon)
                cmd="aks__flex__node__subcmd__help__subcmd__daemon"
                ;;
            aks__flex__node__subcmd__help,help)
                cmd="aks__flex__node__subcmd__help__subcmd__help"
                ;;
            aks__flex__node__subcmd__help,plan)
                cmd="aks__flex__node__subcmd__help__subcmd__plan"
                ;;
            aks__flex__node__subcmd__help,reset)
                cmd="aks__flex__node__subcmd__help__subcmd__reset"
                ;;
            aks__flex__node__subcmd__help,restart)
                cmd="aks__flex__node__subcmd__help__subcmd__restart"
                ;;
            aks__flex__node__subcmd__help,rollback)
                cmd="aks__flex__node__subcmd__help__subcmd__rollback"
                ;;
            aks__flex__node__subcmd__help,slots)
                cmd="aks__flex__node__subcmd__help__subcmd__slots"
                ;;
            aks__flex__node__subcmd__help,start)
                cmd="aks__flex__node__subcmd__help__subcmd__start"
                ;;
            aks__flex__node__subcmd__help,start-node)
                cmd="aks__flex__node__subcmd__help__subcmd__start__subcmd__node"
                ;;
            aks__flex__node__subcmd__help,status)
                cmd="aks__flex__node__subcmd__help__subcmd__status"
                ;;
            aks__flex__node__subcmd__help,stop)
                cmd="aks__flex__node__subcmd__help__subcmd__stop"
                ;;
            aks__flex__node__subcmd__help,upgrade)
                cmd="aks__flex__node__subcmd__help__subcmd__upgrade"
                ;;
            aks__flex__node__subcmd__help,version)
                cmd="aks__flex__node__subcmd__help__subcmd__version"
                ;;
            aks__flex__node__subcmd__help__subcmd__slots,list)
                cmd="aks__flex__node__subcmd__help__subcmd__slots__subcmd__list"
                ;;
            aks__flex__node__subcmd__help__subcmd__slots,prune)
                cmd="aks__flex__node__subcmd__help__subcmd__slots__subcmd__prune"
                ;;
            aks__flex__node__subcmd__help__subcmd__slots,repair)
                cmd="aks__flex__node__subcmd__help__subcmd__slots__subcmd__repair"
                ;;
            aks__flex__node__subcmd__slots,help)
                cmd="aks__flex__node__subcmd__slots__subcmd__help"
                ;;
            aks__flex__node__subcmd__slots,list)
                cmd="aks__flex__node__subcmd__slots__subcmd__list"
                ;;
            aks__flex__node__subcmd__slots,prune)
                cmd="aks__flex__node__subcmd__slots__subcmd__prune"
                ;;
            aks__flex__node__subcmd__slots,repair)
                cmd="aks__flex__node__subcmd__slots__subcmd__repair"
                ;;
            aks__flex__node__subcmd__slots__subcmd__help,help)
                cmd="aks__flex__node__subcmd__slots__subcmd__help__subcmd__help"
                ;;
            aks__flex__node__subcmd__slots__subcmd__help,list)
                cmd="aks__flex__node__subcmd__slots__subcmd__help__subcmd__list"
                ;;
            aks__flex__node__subcmd__slots__subcmd__help,prune)
                cmd="aks__flex__node__subcmd__slots__subcmd__help__subcmd__prune"
                ;;
            aks__flex__node__subcmd__slots__subcmd__help,repair)
                cmd="aks__flex__node__subcmd__slots__subcmd__help__subcmd__repair"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        aks__flex__node)
            opts="-h -V --log-level --help --version start bootstrap status upgrade rollback restart stop start-node slots reset unbootstrap daemon agent plan bundle version completion help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__bundle)
            opts="-h --kubelet --kubectl --containerd --runc --cni --crictl --kube-proxy --image --arch --kubernetes-version --containerd-version --runc-version --cni-version --crictl-version --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --kubelet)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubectl)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --containerd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --runc)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cni)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --crictl)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-proxy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --image)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --arch)
                    COMPREPLY=($(compgen -W "amd64 arm64" -- "${cur}"))
                    return 0
                    ;;
                --kubernetes-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --containerd-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --runc-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cni-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --crictl-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__completion)
            opts="-h --log-level --help bash elvish fish powershell zsh"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__daemon)
            opts="-h --config --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help)
            opts="start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__bundle)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__completion)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__daemon)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__plan)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__reset)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__restart)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__rollback)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__slots)
            opts="list prune repair"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__slots__subcmd__list)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__slots__subcmd__prune)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__slots__subcmd__repair)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__start)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__start__subcmd__node)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__status)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__stop)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__upgrade)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__help__subcmd__version)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__plan)
            opts="-h --config --to-config --to-version --without-rollback --to --output --log-level --help start upgrade rollback restart stop start-node reset"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__reset)
            opts="-y -h --yes --keep-images --remove-agent --kubeconfig --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__restart)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__rollback)
            opts="-y -h --to --yes --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --to)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots)
            opts="-h --log-level --help list prune repair help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__help)
            opts="list prune repair help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__help__subcmd__list)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__help__subcmd__prune)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__help__subcmd__repair)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__list)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__prune)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__slots__subcmd__repair)
            opts="-h --config --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__start)
            opts="-h --config --wait --timeout --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --wait)
                    COMPREPLY=($(compgen -W "ready joined" -- "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__start__subcmd__node)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__status)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__stop)
            opts="-h --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__upgrade)
            opts="-y -h --config --to-config --to-version --yes --retry --without-rollback --output --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        aks__subcmd__flex__subcmd__node__subcmd__version)
            opts="-h --log-level --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _aks__flex__node -o nosort -o bashdefault -o default aks-flex-node
else
    complete -F _aks__flex__node -o bashdefault -o default aks-flex-node
fi
